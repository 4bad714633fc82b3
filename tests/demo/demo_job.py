"""The demo's Spark job: a streaming query that writes the orders as Parquet, with klamm's Kafka source.

It takes so few records at a time that it falls behind, until a line comes on stdin. Then it stops, resumes from its
checkpoint without that limit, reads all remaining records, and prints how many it wrote.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.local.java import find_java
from engine.spark.session import SparkOptions, spark_session
from klamm.spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOCAL = (("spark.driver.host", "127.0.0.1"), ("spark.driver.bindAddress", "127.0.0.1"))


def main(bootstrap: str, topic: str, folder: str, at_a_time: str) -> None:
    """Run the query twice."""
    java = find_java(user="Spark")
    with spark_session(
        "orders",
        SparkOptions("local[2]", LOCAL),
        java_home=java.program.resolve().parents[1],
        has_vector_module=java.has_module("jdk.incubator.vector"),
    ) as spark:
        register(spark)
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        query = (
            to_parquet(spark, options | {"maxOffsetsPerTrigger": at_a_time}, Path(folder))
            .trigger(processingTime="2 seconds")
            .start()
        )
        sys.stdin.readline()
        query.stop()
        to_parquet(spark, options, Path(folder)).trigger(availableNow=True).start().awaitTermination()
        print(spark.read.parquet(f"{folder}/orders").count())


def to_parquet(spark: SparkSession, options: dict[str, str], folder: Path) -> DataStreamWriter:
    """Return the query, ready to start."""
    orders = spark.readStream.format("klamm-kafka").options(**options).load()
    return (
        orders.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.queryName("orders-to-parquet")
        .format("parquet")
        .option("path", str(folder / "orders"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
