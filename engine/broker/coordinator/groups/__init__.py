"""Consumer groups of the classic protocol: a pure core, its records in ``__consumer_offsets``, the loop around it.

* Core: ``state_machine`` has a method for each event, ``rebalance`` the steps of every rebalance. They change a
  ``group`` with its ``member`` objects and ``offsets``, and put what follows into the ``outbox``.
* Loop: ``coordinator`` takes the requests, ``driver`` carries the outbox out: answers, writes, one timer.
* Offsets: ``offset_requests`` checks and answers; ``commit_gathering`` writes the commits of one turn together.
* Log: ``records`` converts groups and offsets to records and back, ``loading`` reads them at a take-over.
"""
