"""Typed definitions of Kafka's broker and topic settings under Kafka's own names. No I/O."""
