"""A real ZooKeeper and brokers on this machine; ``LocalCluster`` is the public test fixture."""
