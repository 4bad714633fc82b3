"""Single brokers: what they are, what they carry, which log dirs they have.

``access`` reads facts by wire, from ZooKeeper or from a snapshot; ``self_report`` is what brokers say about
themselves, and ``description`` combines these. ``reading_load`` and ``load`` say how much each broker carries.
``metrics_sources`` finds where brokers serve metrics, ``reading_metrics`` reads them, and ``metrics`` turns them into
figures. ``doctor`` checks the connection to a cluster step by step, for ``klamm doctor``.
"""
