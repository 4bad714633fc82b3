"""Program: runs a little of what tests of Spark run, and writes an archive of the classes to the path that it gets.

It does nothing if another process does it already.
"""

from __future__ import annotations

import fcntl
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

PATH = Path(sys.argv[1])
NEW = PATH.with_suffix(".new")
JAVA = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={NEW}"

lock = PATH.with_suffix(".lock").open("w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit()

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    builder = SparkSession.builder.master("local[1]").config("spark.driver.extraJavaOptions", JAVA)
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    with builder.config(map=settings).getOrCreate() as spark:
        rows = spark.createDataFrame([(number, f"{number % 3}") for number in range(30)], "number long, text string")
        rows.write.partitionBy("text").parquet(str(folder / "rows"))
        read = spark.read.parquet(str(folder / "rows"))
        read.select(udf(str, "string")("number").alias("words"), "text").groupBy("text").count().orderBy(
            "text"
        ).collect()
        rows.write.json(str(folder / "json"))
        stream = spark.readStream.schema("number long, text string").json(str(folder / "json")).groupBy("text").count()
        writer = stream.writeStream.format("memory").queryName("counts").outputMode("complete")
        writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()
        jvm = spark.sparkContext._gateway.proc

# The JVM ends with its input, and writes the archive as it ends.
jvm.stdin.close()
jvm.wait()
NEW.rename(PATH)
