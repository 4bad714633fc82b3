"""The log: segments, recovery, producer state, leader-epoch cache, log manager."""
