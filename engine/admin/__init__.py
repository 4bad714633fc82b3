"""Operations on any ZooKeeper-mode cluster, ours or Apache Kafka's. Returns data, prints nothing.

One folder per noun. Inside a noun stand its values, then ``by_wire``, ``by_znode`` and ``by_snapshot`` where they
differ; its ``access`` alone chooses between them.
"""
