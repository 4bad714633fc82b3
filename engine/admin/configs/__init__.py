"""Settings of topics, brokers and clients: read and altered by the wire or through the znodes, or read from a file."""
