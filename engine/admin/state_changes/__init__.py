"""State-change logs of many brokers: merged by time, checked for what went wrong, held against a cluster."""
