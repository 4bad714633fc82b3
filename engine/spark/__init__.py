"""What needs PySpark: the Kafka data source, and operations that run as Spark jobs."""
