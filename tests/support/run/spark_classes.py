"""Program: runs a little of what tests of Spark run, and writes an archive of the classes to the path that it gets."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

JAVA = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={sys.argv[1]}"

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    builder = SparkSession.builder.master("local[1]").config("spark.driver.extraJavaOptions", JAVA)
    settings = {"spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    with builder.config(map=settings).getOrCreate() as spark:
        rows = spark.createDataFrame([(number, f"{number % 3}") for number in range(30)], "number long, text string")
        rows.write.partitionBy("text").parquet(str(folder / "rows"))
        read = spark.read.parquet(str(folder / "rows"))
        read.select(udf(str)("number").alias("words"), "text").groupBy("text").count().orderBy("text").collect()
        rows.write.json(str(folder / "json"))
        stream = spark.readStream.schema("number long, text string").json(str(folder / "json")).groupBy("text").count()
        writer = stream.writeStream.format("memory").queryName("counts").outputMode("complete")
        writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()
