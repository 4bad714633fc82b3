"""Single brokers: what they are, what they carry, which log dirs they have.

``access`` reads facts by wire, from ZooKeeper or from a snapshot; ``self_report`` is what brokers say about themselves,
and ``description`` what all of that says. ``reading_load`` and ``load`` say how much each carries. ``metrics_sources``
finds where brokers serve metrics, ``reading_metrics`` reads them, ``metrics`` makes figures of them. ``doctor`` goes to
a cluster step by step, as ``klamm doctor`` shows it.
"""
