"""What older releases of PySpark cannot do is refused with the reason and an alternative."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.sql.types import StructType

import klamm.spark
from klamm.spark import KafkaDataSource, KafkaSourceError, register

SOURCE = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "orders"}


@pytest.fixture
def of_version(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes klamm take PySpark for an older release."""

    def pretend(version: str, **lacks: bool) -> None:
        monkeypatch.setattr(pyspark, "__version__", version)
        for name, value in lacks.items():
            monkeypatch.setattr(klamm.spark, name, value)

    return pretend


def stream_reader(**options: str) -> Any:
    schema = StructType().add("value", "binary")
    return KafkaDataSource(SOURCE | options).streamReader(schema)


def test_before_4_0_there_are_no_python_sources(of_version: Callable[..., None]) -> None:
    of_version("3.5.6", _HAS_SOURCES=False)
    with pytest.raises(KafkaSourceError) as caught:
        register(None)  # type: ignore[arg-type]
    lines, hint = str(caught.value).splitlines()
    assert lines == "PySpark 3.5.6 has no Python data sources, which came with 4.0"
    assert "pip install 'pyspark>=4.0'" in hint
    assert "spark-sql-kafka-0-10_2.12:3.5.6" in hint


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "MAXOFFSETSPERTRIGGER"])
def test_before_4_2_batches_cannot_be_limited(of_version: Callable[..., None], option: str) -> None:
    of_version("4.1.1", _HAS_LIMITS=False)
    with pytest.raises(KafkaSourceError) as caught:
        stream_reader(**{option: "100"})
    lines, hint = str(caught.value).splitlines()
    assert lines == "PySpark 4.1.1 cannot limit the batches of a Python source, which came with 4.2"
    assert hint == "hint: leave maxOffsetsPerTrigger and minOffsetsPerTrigger out, or use PySpark 4.2 or newer"


def test_before_4_2_a_stream_without_limits_is_read(of_version: Callable[..., None]) -> None:
    of_version("4.0.0", _HAS_LIMITS=False)
    reader = stream_reader(startingOffsets='{"orders": {"0": 3}}')
    assert not inspect.signature(reader.latestOffset).parameters, "so PySpark knows that it takes no limit"


def test_since_4_2_batches_can_be_limited() -> None:
    assert stream_reader(maxOffsetsPerTrigger="100").getDefaultReadLimit().max_rows == 100


@pytest.mark.parametrize(
    ("lacks", "expected"), [("pyarrow", "has no pyarrow, so"), ("pyarrow numpy", "no pyarrow and no numpy"), ("", "")]
)
def test_a_worker_python_without_pyarrow_is_warned_of(
    lacks: str, expected: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Spark's own words were a ModuleNotFoundError in the middle of a Java stack trace."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {lacks}\n")
    python.chmod(0o755)
    session: Any = type("SparkSession", (), {"sparkContext": SimpleNamespace(pythonExec=str(python))})
    session.__module__ = "pyspark.sql.session"
    klamm.spark._warn_of_missing_packages(session())
    said = [str(warning.message) for warning in recwarn]
    assert len(said) == bool(lacks)
    for text in said:
        assert str(python) in text and expected in text and "PYSPARK_PYTHON" in text
