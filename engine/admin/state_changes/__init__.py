"""State-change logs of many brokers: merged by time, checked for what went wrong, compared with a cluster."""
