"""``klamm-kafka`` and the lag of Spark's queries on an Apache Kafka that asks for TLS and a login."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from klamm_program import in_process
from patience import within
from rights_story import CELLS_OF_SPARK, Cell, RightsStory, check
from secured_kafka import PASSWORDS, SecuredKafka, jaas


@pytest.fixture(scope="module")
def story(kafka: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> RightsStory:
    return RightsStory(
        tmp_path_factory.mktemp("rights"), kafka.address("PLAINTEXT"), kafka.address("LOGIN"), CELLS_OF_SPARK
    )


@pytest.mark.parametrize("cell", CELLS_OF_SPARK, ids=str)
def test_a_command_works_with_its_rights_and_says_what_it_lacks(
    spark: Any, cell: Cell, story: RightsStory, capsys: pytest.CaptureFixture[str]
) -> None:
    check(story, cell, capsys)


def login(kafka: SecuredKafka, password: str | None = None) -> dict[str, str]:
    """Return the options with which Spark's own source logs in, too."""
    module = jaas("SCRAM-SHA-512", username="admin", password=password or PASSWORDS["admin"])
    return {
        "kafka.bootstrap.servers": kafka.address("SAFE"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        # Not from a file of properties, where backslashes are doubled.
        "kafka.sasl.jaas.config": module.replace("\\\\", "\\"),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.folder / "ca.pem"),
    }


def test_written_and_read_in_batches_and_streams(
    spark: Any, kafka: SecuredKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = kafka.login("SAFE", "SCRAM-SHA-512")
    where = ("-b", kafka.address("SAFE"), "--command-config", config)
    assert in_process("topics", "create", "orders", "--partitions", "2", *where, capture=capsys).code == 0
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    rows.write.format("klamm-kafka").options(**login(kafka)).option("topic", "orders").mode("append").save()
    read = spark.read.format("klamm-kafka").options(**login(kafka)).option("subscribe", "orders").load()
    assert sorted(int(row.value) for row in read.selectExpr("cast(value as string) as value").collect()) == [
        *range(100)
    ]
    from klamm.spark_listener import LagListener

    listener = LagListener(
        tmp_path / "told",
        group="mirror-{query}",
        bootstrap_servers=kafka.address("SAFE"),
        command_config=str(config),
    )
    spark.streams.addListener(listener)
    stream = spark.readStream.format("klamm-kafka").options(**login(kafka)).option("subscribe", "orders")
    query = (
        stream.option("startingOffsets", "earliest").load().writeStream.format("memory").queryName("secured")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert spark.table("secured").count() == 100
    described = ("groups", "describe", "--group", "mirror-secured", *where, "-o", "json")
    is_in_time = within(60)
    while (group := in_process(*described, capture=capsys)).code or not group.json[0]["partitions"]:
        assert is_in_time(), group.err
        time.sleep(0.2)
    assert sum(partition["current_offset"] for partition in group.json[0]["partitions"]) == 100
    spark.streams.removeListener(listener)
    listener.close()
    lag = in_process("lag", "--checkpoint", tmp_path / "checkpoint", *where, "-o", "json", capture=capsys)
    assert [row["kind"] for row in lag.json] == ["checkpoint"] and lag.code == 0, lag.out
    texts = [read._jdf.queryExecution().toString(), str(query.lastProgress), lag.out, lag.err]
    texts += [file.read_text("utf-8", "replace") for file in tmp_path.rglob("*") if file.is_file()]
    assert not [text for text in texts if PASSWORDS["admin"] in text]


def command_lines() -> list[str]:
    """Return what ``ps`` shows of this process and of all that it has started."""
    parents, lines = {}, {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[process.name] = (process / "stat").read_text().rpartition(")")[2].split()[1]
            lines[process.name] = (process / "cmdline").read_text("utf-8", "replace").replace("\0", " ")
    ours, command_lines_seen = {str(os.getpid())}, set[str]()
    while ours:
        command_lines_seen |= ours
        ours = {child for child, parent in parents.items() if parent in ours} - command_lines_seen
    return [line for pid, line in lines.items() if pid in command_lines_seen]


def unpacked(file: Path) -> str:
    """Return what an event log holds by now; its last frame is still open."""
    plain = b""
    with pyarrow.CompressedInputStream(str(file), "zstd") as stream, suppress(OSError):
        while piece := stream.read(4096):
            plain += piece
    return plain.decode("utf-8", "replace")


def test_a_store_that_spark_sends_and_what_its_pages_and_logs_say(
    spark: Any, kafka: SecuredKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("-b", kafka.address("SAFE"), "--command-config", kafka.login("SAFE", "SCRAM-SHA-512"))
    assert in_process("topics", "create", "sent", "--partitions", "1", *where, capture=capsys).code == 0
    (kafka.folder / "sent-ca.pem").write_text((kafka.folder / "ca.pem").read_text())
    spark.sparkContext.addFile(str(kafka.folder / "sent-ca.pem"))
    options = login(kafka) | {"kafka.ssl.truststore.location": "sent-ca.pem"}
    spark.range(10).selectExpr("cast(id as string) as value").write.format("klamm-kafka").options(**options).option(
        "topic", "sent"
    ).mode("append").save()
    read = spark.read.format("klamm-kafka").options(**options).option("subscribe", "sent").load()
    assert read.count() == 10
    store = spark._jsparkSession.sharedState().statusStore()
    runs = [store.executionsList().apply(index) for index in range(store.executionsList().size())]
    assert any("klamm-kafka" in run.physicalPlanDescription() for run in runs)
    texts = {
        f"page {run.executionId()}": f"{run.description()} {run.details()} {run.physicalPlanDescription()}"
        for run in runs
    }
    events = Path(spark.conf.get("spark.eventLog.dir").removeprefix("file:"))
    is_in_time = within(30)
    while "klamm-kafka" not in (logged := "".join(map(unpacked, events.rglob("events_*")))):
        assert is_in_time(), [*events.rglob("*")]
        time.sleep(0.2)
    texts["event log"] = logged
    texts["ps"] = "\n".join(command_lines())
    assert "java" in texts["ps"], "Spark runs beside"
    assert not [name for name, text in texts.items() if PASSWORDS["admin"] in text]


def test_a_wrong_password_is_told_and_not_repeated(spark: Any, kafka: SecuredKafka) -> None:
    with pytest.raises(Exception, match="the broker refuses admin by SCRAM-SHA-512") as caught:
        options = login(kafka, "wr0ng-Secr3t")
        spark.read.format("klamm-kafka").options(**options).option("subscribe", "orders").load().collect()
    assert "wr0ng-Secr3t" not in str(caught.value)
