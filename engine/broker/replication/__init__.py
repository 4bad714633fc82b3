"""Partitions, ISR decisions, the replica manager, the metadata cache, follower fetchers."""
