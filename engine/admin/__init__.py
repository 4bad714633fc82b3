"""Operations on any cluster, ours or Apache Kafka's. Returns data, prints nothing.

One folder per noun. Each noun has its values, then ``by_wire``, ``by_znode`` and ``by_snapshot`` where they differ;
only its ``access`` chooses between them.
"""
