"""ZooKeeper's tree as Kafka uses it, decoded for people."""
