"""Snapshots of a whole cluster: taken from a live one, and kept in a file."""
