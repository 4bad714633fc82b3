"""Kafka's wire format without I/O: message declarations, compiled codecs, framing, record batches."""
