"""Log compaction: which log, how, in which process, and how the result takes the log's place.

``choice`` picks a log and how far to clean it. On the event loop, ``job`` freezes that into a plan, sends it as
``messages`` to a ``worker`` process, and puts each finished group of segments in its place. The worker runs
``cleaning``: it builds the ``key_map`` and copies segment by segment. ``batch_cleaner`` decides about each batch, with
the loops of ``record_scan``, which skip the ``record_runs``, and what ``transactions`` knows about aborted ones.
``engine.broker.server.log_cleaning`` runs it all.
"""
