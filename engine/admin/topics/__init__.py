"""Topics listed, described and changed: over the wire, through the znodes, or read from a snapshot.

``access`` chooses ``by_wire``, ``by_znode`` or the snapshot. ``selection`` says which topics the caller means,
``describing`` reads them, ``changes`` checks changes, and ``deletion`` waits until a name is free again.
"""
