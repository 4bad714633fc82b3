"""Offsets of partitions by position or time, and which partitions a caller means."""
