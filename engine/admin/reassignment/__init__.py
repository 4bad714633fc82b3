"""Reassignments: generate, execute, verify, cancel, with throttles that are removed again.

* Moves: ``generate`` proposes them; ``execute``, ``verify`` and ``cancel`` take a ``plan_file``. They reach the cluster
  through ``access``, by wire or by znode.
* Plans: the faces call ``plan_runs``. ``wave_execution`` carries a plan out in ``waves``, under a ``lock`` and with a
  ``journal``.
* Throttles: ``throttle_settings`` defines the marks that tell klamm's from other people's, ``throttles`` sets and
  removes them, ``wave_throttle`` adapts one while a plan runs.
"""
