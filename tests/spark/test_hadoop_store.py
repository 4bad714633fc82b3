"""Checkpoints on file systems that only Spark knows: here ViewFS, with a mount table in the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark_traces import RECORDED, restore

from engine.admin.cluster.errors import BadRequest, NotFound, Unreachable
from engine.admin.lag.spark_traces import QueryTraces
from engine.admin.lag.stores import Store
from engine.spark.hadoop_store import HadoopStore


def test_traces_on_a_hadoop_file_system(spark: Any, tmp_path: Path) -> None:
    restore(RECORDED / "4.0.0/killed/killed", tmp_path / "checkpoints")
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.lake.link./data", f"file://{tmp_path}")
    spark._jsc.hadoopConfiguration().set(
        "fs.viewfs.mounttable.lake.link./logs", f"file://{RECORDED}/4.0.0/killed/events"
    )

    def others(uri: str) -> tuple[Store, str]:
        return HadoopStore(), uri

    queries, failures = QueryTraces(("viewfs://lake/data/*",), ("viewfs://lake/logs",), others).read()
    assert failures == []
    (checkpoint,) = queries
    (events,), _ = QueryTraces((), ("viewfs://lake/logs",), others).read()
    assert (checkpoint.path, checkpoint.name) == ("viewfs://lake/data/checkpoints/killed", "killed")
    assert sum(position.planned for position in checkpoint.positions()) == 20
    assert sum(position.committed or 0 for position in checkpoint.positions()) == 10
    assert events.committed("0") == checkpoint.committed("0")
    local, _ = QueryTraces((str(tmp_path / "checkpoints"),)).read()
    assert [batch.committed_ms for batch in checkpoint.batches] == [batch.committed_ms for batch in local[0].batches]
    _, failures = QueryTraces(("viewfs://lake/absent", "alluxio://h/x"), ("viewfs://lake/absent",), others).read()
    assert [type(failure) for failure in failures] == [NotFound, BadRequest, NotFound]
    assert "Spark has no file system for this" in str(failures[1])


@pytest.mark.parametrize(
    ("host", "reason"), [("127.0.93.1:9", "Connection refused"), ("namenode.invalid:8020", "namenode.invalid$")]
)
def test_an_hdfs_that_is_not_there_is_named(spark: Any, host: str, reason: str) -> None:
    spark._jsc.hadoopConfiguration().set("ipc.client.connect.max.retries", "0")
    store = HadoopStore()
    for ask in (store.list, store.read):
        with pytest.raises(Unreachable, match=f"HDFS at {host} cannot be reached: {reason}") as caught:
            ask(f"hdfs://{host}/checkpoints")
        assert caught.value.where == f"hdfs://{host}/checkpoints"
