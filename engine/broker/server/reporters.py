"""Writes a broker's metrics somewhere every few seconds: files, Graphite, the console, the log.

The event loop collects the figures a little at a time; a thread of each reporter writes them. A reporter that cannot
write says so once, and tries again: the broker goes on without it. Files of CSV are Yammer's, Graphite gets its plain
protocol, people get lines. MBeans of single partitions are left out everywhere: there may be a hundred thousand, and
Prometheus and Jolokia have them. Sources: CsvReporter and GraphiteReporter of Yammer Metrics 2.2, which Kafka 3.9 uses.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from engine.broker.metrics.mbean import MBean
from engine.broker.server.metrics import BrokerMetrics
from engine.common.errors import ConfigError
from engine.kafka.config.broker import CSV_REPORTER, BrokerConfig

logger = logging.getLogger("kafka.server.KafkaServer")
metrics_logger = logging.getLogger("klamm.metrics")

PATIENCE_S: Final = 10.0
"""How long a reporter waits for Graphite, or for the event loop."""

END_S: Final = 2.0
"""How long the end of the broker waits for a reporter that is writing."""

_METER: Final = {
    "Count": "count",
    "OneMinuteRate": "1 min rate",
    "MeanRate": "mean rate",
    "FiveMinuteRate": "5 min rate",
    "FifteenMinuteRate": "15 min rate",
}
_HISTOGRAM: Final = {
    "Min": "min",
    "Max": "max",
    "Mean": "mean",
    "50thPercentile": "median",
    "StdDev": "stddev",
    "95thPercentile": "95%",
    "99thPercentile": "99%",
    "999thPercentile": "99.9%",
}
"""Columns of Yammer's CSV by attribute. A timer has those of a histogram."""

_GRAPHITE: Final = {
    "Value": "value",
    "Count": "count",
    "MeanRate": "meanRate",
    "OneMinuteRate": "1MinuteRate",
    "FiveMinuteRate": "5MinuteRate",
    "FifteenMinuteRate": "15MinuteRate",
    "Min": "min",
    "Max": "max",
    "Mean": "mean",
    "StdDev": "stddev",
    "50thPercentile": "median",
    "75thPercentile": "75percentile",
    "95thPercentile": "95percentile",
    "98thPercentile": "98percentile",
    "99thPercentile": "99percentile",
    "999thPercentile": "999percentile",
}
_NOT_IN_PATHS: Final = re.compile(r"[^\w-]+")


class Reporter(Protocol):
    """One place where metrics go. It is called in a thread of its own."""

    name: str
    """What a sentence about it calls it."""

    def write(self, mbeans: list[MBean]) -> None:
        """Write them.

        Raises:
            OSError: that cannot be done now.
        """


class CsvReporter:
    """A file for each metric, in a folder that is emptied of such files first, as Kafka's reporter does."""

    def __init__(self, folder: Path) -> None:
        self.name = f"CSV files in {folder}"
        self._folder = folder
        self._begun_s = time.monotonic()
        self._is_empty = False

    def write(self, mbeans: list[MBean]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self._is_empty:
            for old in self._folder.glob("*.csv"):
                old.unlink()
            self._is_empty = True
        for row in csv_rows(mbeans, int(time.monotonic() - self._begun_s)):
            with (self._folder / row.file).open("a") as file:
                if not file.tell():
                    file.write(row.header)
                file.write(row.line)


class GraphiteReporter:
    """Graphite's plain protocol, over a connection for each report."""

    def __init__(self, address: tuple[str, int], prefix: str) -> None:
        self.name = f"Graphite at {address[0]}:{address[1]}"
        self._address = address
        self._prefix = prefix

    def write(self, mbeans: list[MBean]) -> None:
        with socket.create_connection(self._address, PATIENCE_S) as peer:
            peer.sendall("".join(graphite_lines(mbeans, self._prefix, int(time.time()))).encode())


class ConsoleReporter:
    """The standard output."""

    name = "the console"

    def write(self, mbeans: list[MBean]) -> None:
        head = time.strftime("%Y-%m-%d %H:%M:%S ===== metrics")
        sys.stdout.write("\n".join([head, *text_lines(mbeans)]) + "\n")
        sys.stdout.flush()


class LogReporter:
    """The broker's log, under ``klamm.metrics``."""

    name = "the log"

    def write(self, mbeans: list[MBean]) -> None:
        for line in text_lines(mbeans):
            metrics_logger.info("%s", line)


def reporters(config: BrokerConfig) -> list[Reporter]:
    """Return the reporters that the settings name.

    Raises:
        ConfigError: a name is unknown, or Graphite has no address.
    """
    made: list[Reporter] = []
    own = config.originals
    for name in config.kafka_metrics_reporters:
        if name != CSV_REPORTER:
            logger.warning("kafka.metrics.reporters: %s is a Java class that klamm cannot run; it is left out", name)
        elif own.get("kafka.csv.metrics.reporter.enabled", "false").strip().lower() == "true":
            made.append(CsvReporter(Path(own.get("kafka.csv.metrics.dir", "kafka_metrics"))))
    key = "klamm.metrics.reporters"
    makers: dict[str, Callable[[], Reporter]] = {
        "graphite": lambda: _graphite(config),
        "console": ConsoleReporter,
        "log": LogReporter,
    }
    for name in filter(None, (text.strip() for text in own.get(key, "").split(","))):
        if name not in makers:
            raise ConfigError(f"{key}: '{name}' is not a reporter; known are {', '.join(makers)}", key=key)
        made.append(makers[name]())
    return made


def _graphite(config: BrokerConfig) -> GraphiteReporter:
    key = "klamm.metrics.graphite.address"
    text = config.originals.get(key, "").strip()
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"{key}: '{text}' is not an address; write HOST:PORT, such as graphite.example.com:2003", key=key
        )
    prefix = config.originals.get("klamm.metrics.graphite.prefix", "").strip() or f"kafka.{config.broker_id}"
    return GraphiteReporter((host.strip("[]"), int(port)), prefix)


class MetricsReport:
    """Lets one reporter write every few seconds. Create it on the broker's event loop."""

    def __init__(self, metrics: BrokerMetrics, reporter: Reporter, interval_s: float) -> None:
        self._metrics = metrics
        self._reporter = reporter
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._ends = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name=f"metrics to {reporter.name}", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """End the thread; one that waits for a peer ends with the process."""
        self._ends.set()
        await self._loop.run_in_executor(None, self._thread.join, END_S)

    def _run(self) -> None:
        while not self._ends.wait(self._interval_s):
            try:
                asked = asyncio.run_coroutine_threadsafe(self._metrics.collect(with_partitions=False), self._loop)
                self._reporter.write(asked.result(PATIENCE_S))
            except Exception as error:
                self._failed(error)
            else:
                if self._has_failed:
                    logger.info("Metrics go to %s again", self._reporter.name)
                self._has_failed = False

    def _failed(self, error: Exception) -> None:
        """Say once why metrics do not get there."""
        if self._has_failed or self._ends.is_set():
            return
        self._has_failed = True
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        is_known = isinstance(error, OSError)
        logger.log(
            logging.WARNING if is_known else logging.ERROR,
            "Cannot write metrics to %s: %s. The broker goes on, and tries again every %g s",
            self._reporter.name,
            reason,
            self._interval_s,
            exc_info=None if is_known else error,
        )


class CsvRow(NamedTuple):
    """One metric's line, the file it belongs to, and that file's first line."""

    file: str
    header: str
    line: str


def csv_rows(mbeans: Iterable[MBean], elapsed_s: int) -> Iterator[CsvRow]:
    """Yield the lines of Yammer's metrics, those with a name; ``elapsed_s`` is the time since the reporter began.

    A file has its metric's name, as Kafka's. Where Kafka's reporter would stop, because that name is taken or belongs
    to one topic only, type and properties come first.
    """
    taken: set[str] = set()
    for mbean in mbeans:
        if mbean.name is None:
            continue
        names = _HISTOGRAM if "Max" in mbean.attributes else _METER if "Count" in mbean.attributes else None
        values = [mbean.attributes.get("Value")] if names is None else [mbean.attributes[name] for name in names]
        columns = ["value"] if names is None else list(names.values())
        file = _part(mbean.name)
        if mbean.tags or file in taken:
            file = ".".join([_part(mbean.type), *_scope(mbean), file])
        taken.add(file)
        yield CsvRow(f"{file}.csv", f"# time,{','.join(columns)}\n", f"{elapsed_s},{','.join(map(str, values))}\n")


def graphite_lines(mbeans: Iterable[MBean], prefix: str, now_s: int) -> Iterator[str]:
    """Yield a line for each number, under the names of Yammer's reporter; ``now_s`` is the time of day."""
    for mbean in mbeans:
        name = [] if mbean.name is None else [_part(mbean.name)]
        path = ".".join([prefix, mbean.domain, _part(mbean.type), *_scope(mbean), *name])
        for attribute, value in mbean.attributes.items():
            if isinstance(value, int | float) and value == value:
                yield f"{path}.{_GRAPHITE.get(attribute) or _part(attribute)} {value:.10g} {now_s}\n"


def text_lines(mbeans: Iterable[MBean]) -> Iterator[str]:
    """Yield a line for each MBean."""
    for mbean in mbeans:
        values = (f"{name}={_shown(value)}" for name, value in mbean.attributes.items())
        yield f"{mbean.object_name} {' '.join(values)}"


def _scope(mbean: MBean) -> list[str]:
    """Return the further properties as Yammer's scope has them: in their order, names and values."""
    return [_part(text) for tag in sorted(mbean.tags) for text in tag]


def _part(text: str) -> str:
    return _NOT_IN_PATHS.sub("_", text) or "_"


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
