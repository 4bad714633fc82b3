"""A real ZooKeeper and brokers on this machine, for trying things out and for tests."""
