"""The controller: pure core (events in, instructions out) and the loop that carries instructions out.

* ``loop`` has one queue and one task. It gives each event to ``core`` and carries out what comes back: ZooKeeper's part
  with ``zk_instructions``, whose watches turn changed znodes into events, requests to brokers with ``channels``.
* ``core`` passes an event on to the module of its subject: ``broker_changes``, ``topic_changes``, ``topic_deletion``,
  ``reassignment``, ``requested_elections``, ``isr_approval``. These move partitions and replicas through
  ``partition_state_machine`` and ``replica_state_machine``; ``leader_selectors`` chooses leaders.
* ``context`` is all that the core knows. ``request_batch`` collects what one step sends to each broker.
"""
