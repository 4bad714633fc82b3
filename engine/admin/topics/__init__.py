"""Topics listed, described and changed: over the wire, through the znodes, or read from a snapshot."""
