"""The log: segments, recovery, producer state, leader-epoch cache, log manager.

How the parts work together:

* ``log_manager`` owns all logs of a broker. ``log_table`` finds them, ``log_dirs`` knows the disks, ``log_dir_loader``
  opens everything at the start, ``log_checkpoints`` keeps the checkpoint files.
* ``log`` is one replica of a partition and owns its offsets. Each of its parts owns one other thing: ``log_files`` the
  segments (``segment_list``, ``segment``, ``indexes``), ``active_segment`` when to roll, ``producer_state`` producers
  and open transactions, ``leader_epoch_cache`` where epochs begin, ``flush_state`` what is not on disk yet.
* ``log_loader`` opens a partition's folder; ``segment_recovery`` repairs segments after a crash. ``retention`` and
  ``cleaner`` remove records.

Everything belongs to the event loop. Slow disk work is a ``disk_jobs.DiskJob``: it runs in a thread, then finishes on
the loop.
"""
