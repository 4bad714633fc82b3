"""The only place that knows kazoo: the asynchronous ZooKeeper client, sessions, watches, Kafka's operations.

* ``client`` is what others use. ``session_keeper`` opens a new ``session`` when one is lost, ``pipeline`` keeps many
  requests in flight, ``writes`` settles lost answers. ``kazoo_handler`` runs kazoo beside the event loop.
* A subject has one file, with the class of each znode and the reads and writes: ``brokers``, ``topics``,
  ``partitions``, ``controller``, ``configs``, ``acls``, … ``kafka_client`` brings them together.
* ``config_changes``, ``change_follower``, ``notifications`` and ``finalized_features`` follow changes.
"""
