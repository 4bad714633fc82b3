"""Watches a cluster: one frozen frame after the other, what changed between them, recording and replay."""
