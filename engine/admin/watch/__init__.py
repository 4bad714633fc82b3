"""Watches a cluster: one frozen frame after the other, what changed between them, recording and replay.

``live_feed`` runs the readers side by side: ``by_znode`` follows ZooKeeper's watches, ``stage_readings`` asks brokers
(``by_wire``) whenever ``schedule`` says that a stage is due. Answers go into ``knowledge``, which makes a ``frame`` at
each tick. ``diff`` finds the ``events`` between two frames, ``judging`` their health. ``recording`` writes frames to a
file as their changes, and ``replay_feed`` plays it. ``feed`` is the interface that viewers see.
"""
