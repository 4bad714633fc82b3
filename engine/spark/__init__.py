"""What needs PySpark: the Kafka data source, and operations that run as Spark jobs.

* Source and sink (``klamm.spark`` names them): ``kafka_options`` checks the options, ``source`` decides what a batch
  reads, with ``broker_offsets`` and ``offset_ranges``; ``columns`` makes Arrow columns of batches. ``sink`` writes:
  ``row_batches`` cuts the rows, ``encoding`` makes batches of them.
* Jobs: ``lag_job``, ``log_merge`` (with ``log_cuts``), ``replica_check``. ``session`` starts Spark, ``workers`` runs
  functions in its Python workers, which ``archive`` brings the code to.
* Stores: ``store_path``, ``hadoop_store``.
"""
