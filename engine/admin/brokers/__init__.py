"""Single brokers: what they are, what they carry, which log dirs they have."""
