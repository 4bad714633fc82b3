"""Kafka for PySpark without a jar: a data source called ``klamm-kafka``, with the options of Spark's own connector.

    from klamm.spark import klamm_kafka, register

    register(spark)
    spark.read.format("klamm-kafka").option("kafka.bootstrap.servers", "localhost:9092") \\
        .option("subscribe", "orders").load()

    spark.readStream.format(klamm_kafka(spark))     # the connector if its jar is there, else klamm's

It needs PySpark 4.0 or newer, with pyarrow and numpy. Your own process imports none of klamm's internals: Spark's
Python workers do the work, and executors get the code from ``register``.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klamm._worker_python import python_without_zips

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        InputPartition,
        WriterCommitMessage,
    )

    _HAS_SOURCES = True
except ImportError:  # PySpark 3.5 and older: ``register`` says so.
    DataSource = DataSourceReader = DataSourceStreamReader = InputPartition = object  # type: ignore[misc,assignment]
    DataSourceArrowWriter = DataSourceStreamWriter = WriterCommitMessage = object  # type: ignore[misc,assignment]
    _HAS_SOURCES = False

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:
    if _HAS_SOURCES:

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc,no-redef]
            """For PySpark 4.0, which only asks a writer whether it takes Arrow batches."""

    else:
        DataSourceStreamArrowWriter = object  # type: ignore[misc,assignment]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    _HAS_LIMITS = True
except ImportError:  # PySpark 4.0 and 4.1: a Python source cannot limit its batches.
    ReadLimit = ReadAllAvailable = ReadMaxRows = ReadMinRows = object  # type: ignore[misc,assignment]
    SupportsTriggerAvailableNow = object  # type: ignore[misc,assignment]
    _HAS_LIMITS = False

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["FORMAT", "KafkaDataSource", "KafkaSourceError", "klamm_kafka", "register"]

FORMAT = "klamm-kafka"
"""The name that ``format`` takes."""


_ARCHIVE = "klamm-spark.zip"


class KafkaSourceError(Exception):
    """Something cannot be read or written; the text says what to do."""


def register(spark: SparkSession) -> None:
    """Register ``format("klamm-kafka")`` with a session, and give its executors the code.

    Raises:
        KafkaSourceError: this PySpark has no Python data sources.
    """
    if not _HAS_SOURCES:
        import pyspark

        raise KafkaSourceError(
            f"PySpark {pyspark.__version__} has no Python data sources, which came with 4.0\n"
            "hint: pip install 'pyspark>=4.0', or use the connector: "
            f"spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.12:{pyspark.__version__}"
        )
    _ship(spark)
    _warn_of_missing_packages(spark)
    with _found_by_planners(spark), _without_zips(spark):
        spark.dataSource.register(KafkaDataSource)


def klamm_kafka(spark: SparkSession) -> str:
    """Return the format to use: ``kafka`` if the connector's jar is on the class path, else ``klamm-kafka``."""
    try:
        spark.read.format("kafka").load()
    except Exception as error:
        # The connector reports missing options; without it Spark does not find the source.
        if not any(sign in str(error) for sign in ("KAFKA_DATA_SOURCE_NOT_ENABLED", "Failed to find data source")):
            return "kafka"
    register(spark)
    return FORMAT


class KafkaDataSource(DataSource):
    """``klamm-kafka``. Spark creates it in a worker of its own; every method first puts klamm's code on the path."""

    @classmethod
    def name(cls) -> str:
        """The name that ``format`` takes."""
        return FORMAT

    def schema(self) -> str:
        """The columns of Spark's own Kafka source."""
        return str(_call("kafka_options", "schema_text", dict(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of a batch."""
        return _BatchReader(dict(self.options), _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of a stream."""
        kind = _LimitedStreamReader if _HAS_LIMITS else _StreamReader
        reader = kind(dict(self.options), _columns(schema))
        reader.check()
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of a batch."""
        return _BatchWriter(_checked_sink(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer of a stream."""
        # The output mode "complete" means the whole result again: it is sent as it is, as by Spark's own sink.
        return _StreamWriter(_checked_sink(self.options, schema, False))


class _BatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        plan = _call("source", "BatchPlan", self._options, self._columns)
        return [InputPartition(piece) for piece in _with_worded_errors(plan.pieces)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition)


class _StreamReader(DataSourceStreamReader):
    """For PySpark 4.0 and 4.1, and the base of what newer ones get."""

    def __init__(self, options: Mapping[str, str], columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._made: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": None}

    def check(self) -> None:
        """Refuse options that this PySpark cannot honour."""
        options = _call("kafka_options", "source_options", self._options, is_streaming=True)
        limits = options.max_offsets_per_trigger or options.min_offsets_per_trigger
        if not _HAS_LIMITS and limits:
            import pyspark

            raise KafkaSourceError(
                f"PySpark {pyspark.__version__} cannot limit the batches of a Python source, which came with 4.2\n"
                "hint: leave maxOffsetsPerTrigger and minOffsetsPerTrigger out, or use PySpark 4.2 or newer"
            )

    @property
    def _plan(self) -> Any:
        if self._made is None:
            self._made = _call("source", "StreamPlan", self._options, self._columns)
        return self._made

    def initialOffset(self) -> dict[str, Any]:
        return dict(_with_worded_errors(self._plan.initial))

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        return dict(_with_worded_errors(self._plan.end))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(piece) for piece in _with_worded_errors(self._plan.pieces, start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: Spark's checkpoint has the position."""


class _LimitedStreamReader(_StreamReader, SupportsTriggerAvailableNow):
    """For PySpark 4.2 and newer: batches of a chosen size, and a stream that stops at the current end."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]
        options = self._plan.options
        if isinstance(limit, ReadAllAvailable):
            return dict(_with_worded_errors(self._plan.latest, start))
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return dict(_with_worded_errors(self._plan.latest, start, most=most, least=options.min_offsets_per_trigger))

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._plan.options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        _with_worded_errors(self._plan.freeze)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        latest: dict[str, Any] | None = self._plan.known_latest()
        return latest


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        _call("sink", "write_rows", self._options, iterator)
        return WriterCommitMessage()


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        _call("sink", "write_rows", self._options, iterator)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: the records are written."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: written records stay, and the next attempt writes them again."""


def _checked_sink(options: Mapping[str, str], schema: StructType, overwrite: bool) -> dict[str, str]:
    columns = [(field.name, field.dataType.simpleString()) for field in schema]
    _call("sink", "check_sink", dict(options), columns, overwrites=overwrite)
    return dict(options)


def _columns(schema: StructType) -> tuple[str, ...]:
    return tuple(
        _call("kafka_options", "chosen_columns", [(field.name, field.dataType.simpleString()) for field in schema])
    )


def _read(partition: InputPartition) -> Iterator[Any]:
    batches = _call("source", "read_piece", partition.value)
    while True:
        try:
            yield _with_worded_errors(next, batches)
        except StopIteration:
            return


def _call(module: str, name: str, *arguments: Any, **named: Any) -> Any:
    """Call one of klamm's internals: only in Spark's own processes, where nothing else is called ``engine``."""
    import klamm._path  # noqa: F401  (the next import is found by it)

    return _with_worded_errors(getattr(importlib.import_module(f"engine.spark.{module}"), name), *arguments, **named)


def _with_worded_errors(function: Any, *arguments: Any, **named: Any) -> Any:
    """Call ``function``; word its errors for a person, because Spark shows only the text."""
    from engine.common.errors import KlammError
    from engine.spark.kafka_options import error_text

    try:
        return function(*arguments, **named)
    except KlammError as error:
        raise KafkaSourceError(error_text(error)) from None


def _warn_of_missing_packages(spark: SparkSession) -> None:
    """Warn if the workers' Python is on this machine and lacks what Python sources need; Spark fails without a word."""
    context = _context(spark)
    python = shutil.which(context.pythonExec) if context is not None else None
    if python is None:
        return
    asked = "from importlib.util import find_spec; print(*(n for n in ('pyarrow', 'numpy') if find_spec(n) is None))"
    answer = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    if answer.returncode == 0 and answer.stdout.strip():
        warnings.warn(
            f"the Python of Spark's workers, {python}, has no {' and no '.join(answer.stdout.split())}, so sources and "
            "sinks in Python fail\nhint: install it there, or let PYSPARK_PYTHON name a Python that has it, before the "
            "session starts",
            stacklevel=3,
        )


def _ship(spark: SparkSession) -> None:
    """Give executors the code, unless they run in this machine's own Python."""
    context = _context(spark)
    if context is not None and (_runs_here(context) or _has_archive(context)):
        return
    # Executors that start later fetch the archive from here, so it stays until the program ends.
    folder = tempfile.mkdtemp(prefix="klamm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = str(Path(folder) / _ARCHIVE)
    program = [sys.executable, "-P", "-m", "klamm", "spark", "package", "--out", archive, "--quiet"]
    packed = subprocess.run(program, capture_output=True, text=True, check=False)
    if packed.returncode:
        raise KafkaSourceError(packed.stderr.strip() or "the code could not be packed")
    if context is None:
        spark.addArtifacts(archive, pyfile=True)
    else:
        context.addPyFile(archive)


@contextmanager
def _found_by_planners(spark: SparkSession) -> Iterator[None]:
    """Let processes of a source that is registered here find the archive.

    The process that plans a stream runs beside this one, in the executors' Python. Spark makes it look for archives in
    a folder of its own, which is empty. On executors this path leads nowhere, and they have the archive anyway.
    """
    context = _context(spark)
    if context is None or not _has_archive(context):
        yield
        return
    from pyspark import SparkFiles

    before = context.environment
    paths = [SparkFiles.get(_ARCHIVE), before.get("PYTHONPATH")]
    context.environment = before | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        yield
    finally:
        context.environment = before


@contextmanager
def _without_zips(spark: SparkSession) -> Iterator[None]:
    """Let processes of a source that is registered here import PySpark as it is installed."""
    context = _context(spark)
    python = python_without_zips() if context is not None and _runs_here(context) else None
    if python is None:
        yield
        return
    before = context.pythonExec
    context.pythonExec = python
    try:
        yield
    finally:
        context.pythonExec = before


def _context(spark: SparkSession) -> Any:
    """Return the driver's side of Spark; None if it is elsewhere, as with Spark Connect."""
    return getattr(spark, "sparkContext", None) if type(spark).__module__ == "pyspark.sql.session" else None


def _has_archive(context: Any) -> bool:
    return any(str(name).endswith(_ARCHIVE) for name in context._python_includes)


def _runs_here(context: Any) -> bool:
    """Whether executors are threads on this machine and use this process's Python, which has klamm."""
    is_local = context.master == "local" or context.master.startswith("local[")
    python = shutil.which(context.pythonExec)
    if not is_local or python is None:
        return False
    return Path(python) == Path(sys.executable) or python == python_without_zips()
