"""The only place that knows kazoo: the asynchronous ZooKeeper client, sessions, watches, Kafka's operations."""
