"""Topics listed, described and changed: over the wire, through the znodes, or read from a snapshot.

``access`` chooses ``by_wire``, ``by_znode`` or the snapshot. ``selection`` says which topics are meant, ``describing``
reads them, ``changes`` checks what is to change, and ``deletion`` waits until a name is free again.
"""
