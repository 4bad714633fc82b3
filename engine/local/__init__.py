"""A real ZooKeeper and brokers on this machine, for trying out and for tests."""
