"""Real queries of Spark on a cluster, whose checkpoints and event logs become fixtures. Run by ``record_spark.py``.

It knows nothing of klamm: it runs in an environment with some version of PySpark and nothing else. Each scene is a
separate run. The command in ``CHANGE_TOPICS`` changes topics.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

Scene = Callable[["World"], None]
_RUN_S = 600


class World:
    """One Spark session, a cluster, and a folder for checkpoints."""

    def __init__(self, folder: Path, servers: str, scene: str, settings: list[str]) -> None:
        self.folder, self.servers = folder, servers
        builder = SparkSession.builder.master("local[1]").appName(scene)
        defaults = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(folder / "events"),
            "spark.sql.streaming.noDataProgressEventInterval": "200",
        }
        for name, value in (defaults | dict(setting.split("=", 1) for setting in settings)).items():
            builder = builder.config(name, value)
        (folder / "events").mkdir(parents=True, exist_ok=True)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")

    def change_topics(self, *words: str) -> None:
        """Run a command on the cluster's topics."""
        subprocess.run([*shlex.split(os.environ["CHANGE_TOPICS"]), *words], check=True, stdout=subprocess.DEVNULL)

    def produce(self, topic: str, count: int, partition: int = 0) -> None:
        """Write records to a partition, as one batch: a query that runs reads all of them or none."""
        values = self.spark.range(count).select(F.expr("cast(id as string)").alias("value"))
        writer = values.withColumn("partition", F.lit(partition)).write.format("kafka").option("topic", topic)
        writer.option("kafka.bootstrap.servers", self.servers).option("kafka.linger.ms", 1000).save()

    def stream(self, topics: str, **options: object) -> DataFrame:
        """Read topics as a stream, from the beginning."""
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("subscribe", topics).option("startingOffsets", "earliest")
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load()

    def start(self, frame: DataFrame, name: str, mode: str = "append", **trigger: object) -> Any:
        """Start a query that throws away what it reads."""
        return self.write(frame, name, mode, **trigger).format("noop").start()

    def write(self, frame: DataFrame, name: str, mode: str = "append", **trigger: object) -> Any:
        writer = frame.writeStream.queryName(name).outputMode(mode)
        return writer.option("checkpointLocation", str(self.folder / name)).trigger(
            **(trigger or {"processingTime": "0 seconds"})
        )


def stateless(world: World) -> None:
    """Batches of one topic, whose old ones are purged: minBatchesToRetain is 3."""
    world.change_topics("create", "orders", "--partitions", "2", "--replication-factor", "1")
    query = world.start(world.stream("orders"), "stateless")
    # Here and below: so that batch 0 has no records.
    query.processAllAvailable()
    for _ in range(7):
        world.produce("orders", 10, partition=1)
        query.processAllAvailable()
    query.stop()


def stateful(world: World) -> None:
    """Counts by key."""
    world.change_topics("create", "clicks", "--partitions", "2", "--replication-factor", "1")
    query = world.start(world.stream("clicks").groupBy("value").count(), "stateful", "update")
    query.processAllAvailable()
    for _ in range(2):
        world.produce("clicks", 10, partition=1)
        query.processAllAvailable()
    query.stop()


def join(world: World) -> None:
    """Two topics in one query, one of them in a second source as well."""
    for topic in ("left", "right"):
        world.change_topics("create", topic, "--partitions", "1", "--replication-factor", "1")
        world.produce(topic, 10)
    both = world.stream("left").select("value").join(world.stream("right").select("value"), "value")
    query = world.start(both, "join")
    query.processAllAvailable()
    world.produce("right", 10)
    query.processAllAvailable()
    query.stop()
    twice = (
        world.stream("left", maxOffsetsPerTrigger=4).select("value").union(world.stream("left,right").select("value"))
    )
    query = world.start(twice, "union")
    query.processAllAvailable()
    query.stop()


def foreach_batch(world: World) -> None:
    """A function per batch."""
    world.change_topics("create", "each", "--partitions", "1", "--replication-factor", "1")
    world.produce("each", 10)
    query = world.write(world.stream("each"), "foreach-batch").foreachBatch(lambda rows, _: rows.count()).start()
    query.processAllAvailable()
    query.stop()


def available_now(world: World) -> None:
    """Everything there is, four offsets at a time, and again when there is nothing new."""
    world.change_topics("create", "nightly", "--partitions", "2", "--replication-factor", "1")
    world.produce("nightly", 10)
    for _ in range(2):
        stream = world.stream("nightly", maxOffsetsPerTrigger=4)
        assert world.start(stream, "available-now", availableNow=True).awaitTermination(_RUN_S)


def killed(world: World) -> None:
    """Killed when batch 2 was planned but not finished; the event log ends there."""
    world.change_topics("create", "payments", "--partitions", "2", "--replication-factor", "1")
    pid = world.spark._jvm.java.lang.ProcessHandle.current().pid()

    def kill_at_two(rows: DataFrame, batch_id: int) -> None:
        rows.count()
        if batch_id == 2:
            os.kill(pid, signal.SIGKILL)

    query = world.write(world.stream("payments"), "killed").foreachBatch(kill_at_two).start()
    query.processAllAvailable()
    for _ in range(3):
        world.produce("payments", 10, partition=1)
        query.processAllAvailable()


def grown(world: World) -> None:
    """A topic gets two more partitions while it is read."""
    world.change_topics("create", "grows", "--partitions", "1", "--replication-factor", "1")
    stream = world.stream("grows", **{"kafka.metadata.max.age.ms": 200})
    query = world.start(stream, "grown")
    query.processAllAvailable()
    world.produce("grows", 10)
    query.processAllAvailable()
    world.change_topics("alter", "grows", "--partitions", "3")
    query.stop()
    query = world.start(stream, "grown")
    world.produce("grows", 9)
    query.processAllAvailable()
    query.stop()


def made_again(world: World) -> None:
    """A topic is deleted and recreated after it was read; the checkpoint knows the old one."""
    world.change_topics("create", "short-lived", "--partitions", "1", "--replication-factor", "1")
    world.produce("short-lived", 10)
    query = world.start(world.stream("short-lived"), "made-again")
    query.processAllAvailable()
    query.stop()
    world.change_topics("delete", "short-lived", "--yes")
    world.change_topics("create", "short-lived", "--partitions", "1", "--replication-factor", "1")
    world.produce("short-lived", 3)


def beside_files(world: World) -> None:
    """One query with a Kafka source, a rate source and a file source, and the offset log that this version chooses."""
    world.change_topics("create", "mixed", "--partitions", "2", "--replication-factor", "1")
    world.produce("mixed", 10)
    inbox = world.folder / "inbox"
    inbox.mkdir()
    (inbox / "a.txt").write_text("one\n")
    kafka = world.stream("mixed").select(F.expr("cast(value as string)").alias("value"))
    rate = world.spark.readStream.format("rate").load().select(F.expr("cast(value as string)").alias("value"))
    files = world.spark.readStream.text(str(inbox))
    query = world.start(kafka.union(rate).union(files), "beside-files", availableNow=True)
    assert query.awaitTermination(_RUN_S)


def named_sources(world: World) -> None:
    """The offset log of version 2; a Python source with offsets like Kafka's replaces the connector."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Reader(DataSourceStreamReader):
        def __init__(self) -> None:
            self._end = 0

        def initialOffset(self) -> dict[str, dict[str, int]]:
            return {"orders": {"0": 0, "1": 0}}

        def latestOffset(self, *_: object) -> dict[str, dict[str, int]]:
            self._end = min(self._end + 5, 10)
            return {"orders": {"0": self._end, "1": self._end // 2}}

        def partitions(self, start: object, end: object) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Any:
            yield ("x",)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "scripted"

        def schema(self) -> str:
            return "value string"

        def streamReader(self, schema: object) -> Reader:
            return Reader()

    world.spark.dataSource.register(Source)
    stream = world.spark.readStream.format("scripted").name("orders_src").load()
    rate = world.spark.readStream.format("rate").name("rate_src").load().select(F.expr("'x'").alias("value"))
    query = world.start(stream.union(rate), "named-sources")
    deadline = time.monotonic() + _RUN_S
    while (query.lastProgress or {}).get("batchId", 0) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    query.stop()


def state_with_ids(world: World) -> None:
    """The commit log of version 2, which names the state that a batch left."""
    _count(world, "state-with-ids")


def named_sink(world: World) -> None:
    """The commit log of version 3, which names the sink. PySpark 4.3 has no method for that; its JVM has."""
    _count(world, "named-sink", sink="results")


def _count(world: World, name: str, sink: str | None = None) -> None:
    stream = world.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
    if sink is not None:
        stream = stream.name("rate_src")
    writer: Any = world.write(stream.load().groupBy("value").count(), name, "update").format("noop")
    if sink is not None:
        writer._jwrite = writer._jwrite.name(sink)
    query = writer.start()
    deadline = time.monotonic() + _RUN_S
    while (query.lastProgress or {}).get("batchId", 0) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    query.stop()


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        stateless, stateful, join, foreach_batch, available_now, killed, grown, made_again, beside_files, named_sources,
        state_with_ids, named_sink,
    )
}  # fmt: skip


def main() -> None:
    """Run scenes: FOLDER SERVERS SCENE [SETTING=VALUE …]."""
    folder, servers, scene, *settings = sys.argv[1:]
    world = World(Path(folder), servers, scene, settings)
    SCENES[scene](world)
    print(json.dumps({"spark": world.spark.version, "application": world.spark.sparkContext.applicationId}))
    world.spark.stop()


if __name__ == "__main__":
    main()
