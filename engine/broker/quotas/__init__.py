"""Quotas of clients: what users and client ids may use of one broker, and how long one that used more has to wait."""
