"""Offsets of partitions by position or time, and the partitions that a caller means."""
