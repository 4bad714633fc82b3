"""A connection to a broker, for brokers among themselves and for tools."""
