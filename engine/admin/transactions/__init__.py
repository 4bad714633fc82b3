"""Transactions of a cluster: which there are, who writes to a partition, what hangs, and how it is ended."""
