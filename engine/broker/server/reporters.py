"""Writes a broker's metrics somewhere every few seconds: files, Graphite, the console, the log.

The event loop collects the figures a little at a time; a thread of each reporter writes them. A reporter that cannot
write says so once, and tries again: the broker goes on without it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from engine.broker.metrics.mbeans import MBean
from engine.broker.metrics.reports import csv_rows, graphite_lines, reported, text_lines
from engine.broker.server.metrics import BrokerMetrics
from engine.common.errors import ConfigError
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.broker_warnings import CSV_REPORTER

logger = logging.getLogger("kafka.server.KafkaServer")
metrics_logger = logging.getLogger("klamm.metrics")

PATIENCE_S: Final = 10.0
"""How long a reporter waits for Graphite, or for the event loop."""

END_S: Final = 2.0
"""How long the end of the broker waits for a reporter that is writing."""


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
    found: list[Reporter] = []
    own = config.originals
    for name in config.kafka_metrics_reporters:
        if name != CSV_REPORTER:
            logger.warning("kafka.metrics.reporters: %s is a Java class that klamm cannot run; it is left out", name)
        elif own.get("kafka.csv.metrics.reporter.enabled", "false").strip().lower() == "true":
            found.append(CsvReporter(Path(own.get("kafka.csv.metrics.dir", "kafka_metrics"))))
    key = "klamm.metrics.reporters"
    makers: dict[str, Callable[[], Reporter]] = {
        "graphite": lambda: _graphite(config),
        "console": ConsoleReporter,
        "log": LogReporter,
    }
    for name in filter(None, (text.strip() for text in own.get(key, "").split(","))):
        if name not in makers:
            raise ConfigError(f"{key}: '{name}' is no reporter; known are {', '.join(makers)}", key=key)
        found.append(makers[name]())
    return found


def _graphite(config: BrokerConfig) -> GraphiteReporter:
    key = "klamm.metrics.graphite.address"
    text = config.originals.get(key, "").strip()
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{key}: '{text}' is no address; write HOST:PORT, such as graphite.example.com:2003", key=key)
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
                self._reporter.write(list(reported(asked.result(PATIENCE_S))))
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
            "Cannot write metrics to %s: %s. The broker goes on, and tries again every %g seconds",
            self._reporter.name,
            reason,
            self._interval_s,
            exc_info=None if is_known else error,
        )
