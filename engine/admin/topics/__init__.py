"""Topics listed, described and changed: by the wire, through the znodes, or read from a snapshot."""
