"""Operations on any ZooKeeper-mode cluster, ours or Apache Kafka's. Returns data, prints nothing."""
