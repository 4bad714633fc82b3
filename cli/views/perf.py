"""Figures of performance tests: the lines of Kafka's tools while they come, or rows and documents for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cli.framework.progress import Progress
from cli.framework.stdout import data_stream
from cli.output.format import OutputFormat
from cli.output.printer import csv_line, json_text
from cli.output.values import json_value
from engine.admin.perf.results import ConsumeFigures, SendFigures, SendMetrics

_LINES = (OutputFormat.TABLE, OutputFormat.PLAIN, OutputFormat.KAFKA)
_SEND_COLUMNS = (
    "kind", "start_time", "end_time", "records_sent", "sent_bytes", "records_per_sec", "mb_per_sec", "avg_latency_ms",
    "max_latency_ms", "p50_latency_ms", "p95_latency_ms", "p99_latency_ms", "p999_latency_ms",
)  # fmt: skip
_CONSUME_COLUMNS = (
    "start.time", "end.time", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec", "rebalance.time.ms",
    "fetch.time.ms", "fetch.MB.sec", "fetch.nMsg.sec",
)  # fmt: skip
_THREAD = "0"
_TOO_FEW = (
    "WARNING: Exiting before consuming the expected number of messages: timeout ({} ms) exceeded. You can use the "
    "--timeout option to increase the timeout.\n"
)


def print_payloads(file: Path, count: int) -> None:
    """Say which values are sent, as kafka-producer-perf-test does."""
    _write(f"Reading payloads from: {file.absolute()}\nNumber of messages read: {count}\n")


class SendPrinter:
    """Prints what a producer's test measured: every window when it ends, and the total."""

    def __init__(self, output: OutputFormat, progress: Progress) -> None:
        self._output = output
        self._progress = progress
        self._windows: list[SendFigures] = []
        self._has_header = False

    def window(self, figures: SendFigures) -> None:
        """Print one window, or keep it for the document at the end."""
        self._progress.end()
        if self._output in _LINES:
            _write(f"{_window_line(figures)}\n")
        elif self._output is OutputFormat.CSV:
            self._row(figures)
        elif self._output is OutputFormat.JSONL:
            _write(f"{json_text(_rounded(figures), is_indented=False)}\n")
        else:
            self._windows.append(figures)

    def planned(self, topics: Sequence[str], record_count: int) -> None:
        """Print what a dry run would send."""
        if self._output in _LINES:
            return
        if self._output is OutputFormat.CSV:
            _write(csv_line(_SEND_COLUMNS))
        else:
            _write_document({"topics": list(topics), "record_count": record_count, "records_sent": 0}, self._output)

    def end(self, total: SendFigures, metrics: SendMetrics | None) -> None:
        """Print the total, and how it was sent if that is wanted."""
        if self._output in _LINES:
            _write(f"{_total_line(total, digits=6 if self._output is OutputFormat.KAFKA else 1)}\n")
            if metrics is not None:
                _write("".join(f"{_metric_line(name, value)}\n" for name, value in _rounded(metrics).items()))
        elif self._output is OutputFormat.CSV:
            self._row(total)
        else:
            document = _rounded(total)
            if self._output is not OutputFormat.JSONL:
                document["windows"] = [_rounded(window) for window in self._windows]
            if metrics is not None:
                document["metrics"] = _rounded(metrics)
            _write_document(document, self._output)

    def _row(self, figures: SendFigures) -> None:
        if not self._has_header:
            _write(csv_line(_SEND_COLUMNS))
            self._has_header = True
        values = _rounded(figures)
        _write(csv_line("" if values[name] is None else str(values[name]) for name in _SEND_COLUMNS))


class ConsumePrinter:
    """Prints what a consumer's test measured: a row at the end, or with details one per window."""

    def __init__(self, output: OutputFormat, progress: Progress, *, is_detailed: bool, has_header: bool) -> None:
        self._output = output
        self._progress = progress
        self._is_detailed = is_detailed
        self._has_header = has_header
        self._windows: list[ConsumeFigures] = []
        self._is_begun = False

    def window(self, figures: ConsumeFigures) -> None:
        """Print one window if details are wanted."""
        if not self._is_detailed:
            return
        self._progress.end()
        if self._output in (*_LINES, OutputFormat.CSV):
            self._line(figures)
        elif self._output is OutputFormat.JSONL:
            _write(f"{json_text(_rounded(figures), is_indented=False)}\n")
        else:
            self._windows.append(figures)

    def end(self, total: ConsumeFigures, idle_s: float | None) -> None:
        """Print the total; as lines only without details, like Kafka's tool, or if the run was too short for a window.

        ``idle_s``: how long no record came before there were enough; Kafka's tool says so among its lines.
        """
        if idle_s is not None and self._output is OutputFormat.KAFKA:
            self._header()
            _write(_TOO_FEW.format(round(idle_s * 1000)))
        if self._output in (*_LINES, OutputFormat.CSV):
            if not self._is_detailed or not (self._is_begun or self._output is OutputFormat.KAFKA):
                self._line(total)
            return
        document = _rounded(total)
        if self._is_detailed and self._output is not OutputFormat.JSONL:
            document["windows"] = [_rounded(window) for window in self._windows]
        _write_document(document, self._output)

    def _header(self) -> None:
        if self._has_header and not self._is_begun:
            names = ("time", "threadId", *_CONSUME_COLUMNS[2:]) if self._is_detailed else _CONSUME_COLUMNS
            self._cells(names)
        self._is_begun = True

    def _line(self, figures: ConsumeFigures) -> None:
        self._header()
        times = (_kafka_time(figures.start_time), _kafka_time(figures.end_time))
        self._cells(((times[1], _THREAD) if self._is_detailed else times) + _consume_cells(figures))

    def _cells(self, cells: tuple[str, ...]) -> None:
        _write(csv_line(cells) if self._output is OutputFormat.CSV else ", ".join(cells) + "\n")


def _window_line(figures: SendFigures) -> str:
    return (
        f"{figures.records_sent} records sent, {figures.records_per_sec:.1f} records/sec "
        f"({figures.mb_per_sec:.2f} MB/sec), {figures.avg_latency_ms or 0:.1f} ms avg latency, "
        f"{figures.max_latency_ms or 0:.1f} ms max latency."
    )


def _total_line(figures: SendFigures, *, digits: int) -> str:
    """Return the last line. Kafka's has six digits of the rate until 3.9, and one since 4.0."""
    shares = (
        (figures.p50_latency_ms, "50th"),
        (figures.p95_latency_ms, "95th"),
        (figures.p99_latency_ms, "99th"),
        (figures.p999_latency_ms, "99.9th"),
    )
    percentiles = ", ".join(f"{int(value or 0)} ms {name}" for value, name in shares)
    return (
        f"{figures.records_sent} records sent, {figures.records_per_sec:.{digits}f} records/sec "
        f"({figures.mb_per_sec:.2f} MB/sec), {figures.avg_latency_ms or 0:.2f} ms avg latency, "
        f"{figures.max_latency_ms or 0:.2f} ms max latency, {percentiles}."
    )


def _consume_cells(figures: ConsumeFigures) -> tuple[str, ...]:
    return (
        f"{figures.consumed_mb:.4f}",
        f"{figures.mb_per_sec:.4f}",
        str(figures.consumed_records),
        f"{figures.records_per_sec:.4f}",
        str(figures.rebalance_time_ms),
        str(figures.fetch_time_ms),
        f"{figures.fetch_mb_per_sec:.4f}",
        f"{figures.fetch_records_per_sec:.4f}",
    )


def _kafka_time(moment: datetime) -> str:
    """Return a time as kafka-consumer-perf-test writes it: local, with a colon before the milliseconds."""
    local = moment.astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}:{local.microsecond // 1000:03d}"


def _rounded(figures: SendFigures | ConsumeFigures | SendMetrics) -> dict[str, object]:
    """Return the figures by name, with no more digits than are known."""
    document = json_value(figures)
    assert isinstance(document, dict)
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in document.items()}


def _metric_line(name: str, value: object) -> str:
    return f"producer-metrics:{name.replace('_', '-')} : {'-' if value is None else value}"


def _write_document(document: dict[str, object], output: OutputFormat) -> None:
    if output is OutputFormat.YAML:
        import yaml

        _write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=4096))
    else:
        _write(json_text(document, is_indented=output is OutputFormat.JSON) + "\n")


def _write(text: str) -> None:
    with data_stream() as stream:
        stream.write(text)
