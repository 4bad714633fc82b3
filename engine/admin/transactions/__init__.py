"""Transactions of a cluster: list them, find the producers of a partition and hanging transactions, and end one."""
