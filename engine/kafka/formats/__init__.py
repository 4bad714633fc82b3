"""Pure file formats: indexes, snapshots, checkpoints, the records of internal topics, log lines."""
