"""Settings of topics, brokers and clients: read and altered over the wire or in the znodes, or read from a file.

``access`` chooses the side, ``by_wire`` or ``by_znode``. ``values`` is what they read and write; ``quotas`` says which
quotas count for a client, and ``credentials`` has users' SCRAM credentials.
"""
