"""Snapshots of a whole cluster: taken from a live one; ``cluster.snapshot_file`` keeps them on disk."""
