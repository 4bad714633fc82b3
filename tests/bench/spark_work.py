"""One Spark program of the bench ``spark``, in a process of its own: a job, timed, with our source or the connector.

    python spark_work.py '{"what": "batch", "format": "klamm-kafka", ...}'

It prints seconds, one number per round. PYTHONPATH leads to klamm. ``steady`` prints ``ready`` after each batch, and
continues after a line of input: then there are records for the next batch.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

COLUMNS = {"all": ["*"], "value": ["value"]}


def main() -> None:
    given = json.loads(sys.argv[1])
    begin = time.perf_counter()
    spark = session(given)
    spark.range(1).count()
    started_s = time.perf_counter() - begin
    if given["format"] == "klamm-kafka":
        from klamm.spark import register

        register(spark)
    if given["what"] == "steady":
        seconds = steady(spark, given)
    else:
        work = {"batch": batch, "stream": stream, "sink": sink, "start": lambda spark, given: 0.0}[given["what"]]
        seconds = [timed(work, spark, given) for _ in range(given["rounds"])]
    spark.stop()
    print(json.dumps({"start_s": started_s, "seconds": seconds}))


def session(given: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.log.level", "OFF").config("spark.ui.showConsoleProgress", "false")
    if given.get("jars"):
        builder = builder.config("spark.jars", given["jars"])
    return builder.getOrCreate()


def timed(work: Callable[[Any, dict[str, Any]], float], spark: Any, given: dict[str, Any]) -> float:
    begin = time.perf_counter()
    waited_s = work(spark, given)
    return time.perf_counter() - begin - waited_s


def read(source: Any, given: dict[str, Any]) -> Any:
    options = {"kafka.bootstrap.servers": given["bootstrap"], "subscribe": given["topic"], **given.get("options", {})}
    source = source.format(given["format"]).options(**options)
    if given["columns"] != "all" and given["format"] == "klamm-kafka":
        source = source.schema("value binary")
    return source.load().select(*COLUMNS[given["columns"]])


def batch(spark: Any, given: dict[str, Any]) -> float:
    read(spark.read, given).write.format("noop").mode("overwrite").save()
    return 0.0


def stream(spark: Any, given: dict[str, Any]) -> float:
    given = given | {"options": {"startingOffsets": "earliest", **given.get("options", {})}}
    with tempfile.TemporaryDirectory() as folder:
        query = (
            read(spark.readStream, given)
            .writeStream.format("noop")
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return 0.0


def steady(spark: Any, given: dict[str, Any]) -> list[float]:
    """Return the duration of each batch of one running query by its own account, planning included.

    A batch ends only when the records of the next one exist, so each batch has as many, and nothing else runs while
    they are read. The wait for them is left out.
    """
    waits_s: list[float] = []

    def pass_on(data: Any, number: int) -> None:
        data.write.format("noop").mode("overwrite").save()
        begin = time.perf_counter()
        if number + 1 < given["rounds"]:
            print("ready", flush=True)
            sys.stdin.readline()
        waits_s.append(time.perf_counter() - begin)

    given = given | {"options": {"startingOffsets": "earliest"}}
    with tempfile.TemporaryDirectory() as folder:
        writer = read(spark.readStream, given).writeStream.foreachBatch(pass_on).option("checkpointLocation", folder)
        query = writer.trigger(processingTime="0 seconds").start()
        query.processAllAvailable()
        progresses = [progress for progress in query.recentProgress if progress["numInputRows"]]
        query.stop()
    assert [progress["numInputRows"] for progress in progresses] == [given["records"]] * given["rounds"]
    return [
        progress["durationMs"]["triggerExecution"] / 1000 - wait
        for progress, wait in zip(progresses, waits_s, strict=True)
    ]


def sink(spark: Any, given: dict[str, Any]) -> float:
    rows = spark.range(0, given["records"], 1, 2).selectExpr("cast(id as string) as key", "repeat('x', 100) as value")
    writer = rows.write.format(given["format"]).option("kafka.bootstrap.servers", given["bootstrap"])
    writer.option("topic", given["topic"]).mode("append").save()
    return 0.0


if __name__ == "__main__":
    main()
