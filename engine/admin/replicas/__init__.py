"""Replicas of partitions compared with each other."""
