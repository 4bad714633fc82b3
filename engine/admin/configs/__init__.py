"""Settings of topics, brokers and clients: read and altered over the wire or in the znodes, or read from a file.

``access`` chooses the side, ``by_wire`` or ``by_znode``. ``values`` and ``quotas`` are what they read and write.
``credentials`` has users' SCRAM credentials, ``quota_reading`` which quotas count for a client.
"""
