"""Partitions, ISR decisions, the replica manager, the metadata cache, follower fetchers.

How the parts work together:

* ``replica_manager`` hosts the replicas. ``leader_and_isr_change`` and ``stop_replica_change`` each carry out one
  request of the controller, and change the ``roles`` of partitions.
* ``partition`` is one replica: appends and reads pass through it. ``isr`` decides who is in sync and how far the high
  watermark may advance; ``isr_proposals`` asks for another ISR, and an ``isr_updater`` has it written.
* Of a follower, ``fetcher_manager`` gives each partition to a ``fetcher``; ``follower`` applies the leader's answers
  to the log, and ``truncation`` says where to cut it first.
* ``log_dir_moves`` and ``log_dir_copy`` move a replica to another log dir. ``throttle`` limits copying.
* ``partition_environment`` is what all partitions share. Its ``Wakeups`` let requests that wait look again after a
  change.
"""
