"""Settings of topics, brokers and clients: read and altered over the wire or in the znodes, or read from a file."""
