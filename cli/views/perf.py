"""Figures of performance tests: the lines of Kafka's tools as they arrive, or rows and documents for scripts.

A suite prints a table with bars per experiment on the terminal, and the same as SVG or HTML. If the articles published
a rate, it is beside the measured one.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from cli.exit_codes import ExitCode
from cli.framework.progress import Progress
from cli.framework.stdout import data_stream
from cli.output.format import OutputFormat
from cli.output.printer import csv_line, json_text
from cli.output.report import Column, Drawing, Kind, Report, Section, Table, cells_of
from cli.output.values import human_text, json_value
from engine.admin.perf.results import ConsumeFigures, SendFigures, SendMetrics
from engine.admin.perf.suite import Case, CaseResult, Experiment, WatchedDisks, by_experiment, bytes_on_disks, document
from engine.admin.perf.suite_run import SuiteOptions
from engine.common.quantities import counted, size_text

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


Rates = Mapping[tuple[str, str], float]

_HEADINGS = {
    "producers": "Producers",
    "record-size": "Bytes",
    "partitions": "Partitions",
    "replicas": "Replicas",
    "consumers": "Consumers",
    "pair": "Both",
}
_SENT = (
    Column("sent_per_sec", Kind.NUMBER, title="Sent/s", drawing=Drawing.BAR, scale="rate"),
    Column("sent_mb_per_sec", Kind.NUMBER, title="MiB/s"),
)
_READ = (
    Column("read_per_sec", Kind.NUMBER, title="Read/s", drawing=Drawing.BAR, scale="rate"),
    Column("read_mb_per_sec", Kind.NUMBER, title="MiB/s"),
)
_LATENCIES = (
    Column("p50_latency_ms", Kind.NUMBER, title="p50 ms"),
    Column("p95_latency_ms", Kind.NUMBER, title="p95 ms", is_dispensable=True),
    Column("p99_latency_ms", Kind.NUMBER, title="p99 ms"),
    Column("p999_latency_ms", Kind.NUMBER, title="p99.9 ms", is_dispensable=True),
)
_CPU = (Column("broker_cpu_s_per_million", Kind.NUMBER, title="CPU s/M"),)
_PUBLISHED = (Column("published_per_sec", Kind.NUMBER, title="Articles/s"),)
_COMPARED = (Column("before_per_sec", Kind.NUMBER, title="Before/s"), Column("ratio", Kind.NUMBER, title="Ratio"))
_MEASURED = (*_SENT, *_READ, *_LATENCIES, *_CPU, *_PUBLISHED)
_PLANNED = tuple(
    Column(name, Kind.NUMBER) for name in ("producers", "consumers", "record_bytes", "partitions", "replicas")
)
_ERROR = Column("error", falls_below=True)
_BAR_HEIGHT, _ROW_HEIGHT, _LABEL_WIDTH, _PLOT_WIDTH = 14, 20, 110, 520


def preview_lines(
    chosen: Sequence[Experiment], options: SuiteOptions, broker_count: int, disks: WatchedDisks
) -> list[str]:
    """Return what will be done, before it is done."""
    lines = [
        f"  {experiment.name}: {experiment.title}: {', '.join(case.label for case in experiment.cases)}"
        for experiment in chosen
    ]
    cases = [case for experiment in chosen for case in experiment.cases]
    count = sum(2 if case.consumers and not case.is_pair else 1 for case in cases)
    at_most = max(bytes_on_disks(case, options.producer_bytes_max) for case in cases)
    return [
        *lines,
        f"  about {count * (options.seconds + 2):.0f} s on {counted(broker_count, 'broker')}; a topic for each case, "
        f"deleted after it; stops if less than {options.free_share_min:.0%} of a disk is free",
        f"  a case writes at most {size_text(at_most)} on all disks; brokers free it log.segment.delete.delay.ms "
        "later (60 s by default), so a case may wait for room",
        *_disk_lines(cases, options.producer_bytes_max, disks),
    ]


def _disk_lines(cases: Sequence[Case], producer_bytes: int, disks: WatchedDisks) -> Iterator[str]:
    """Yield which disks are not watched, and how many cases have no room."""
    for broker, log_dir in sorted(disks.offline):
        yield f"  {log_dir} of broker {broker} is offline already, and is not watched"
    for broker, reason in disks.unwatched.items():
        yield f"  broker {broker} does not say how large its disks are, so they are not watched: {reason}"
    short = [case for case in cases if disks.shortage(case, producer_bytes)]
    if short:
        fitting = disks.producer_bytes_with_room(cases, producer_bytes)
        hint = f"none with --producer-bytes {fitting}" if fitting else "whatever --producer-bytes is"
        yield f"  left out for lack of room: {len(short)} of {counted(len(cases), 'case')}; {hint}"


def planned_report(chosen: Sequence[Experiment], facts: Mapping[str, object]) -> Report:
    """What a run would measure: the document of a run, with nothing measured yet."""
    cases = [case for experiment in chosen for case in experiment.cases]
    rows = [(case.experiment, *cells_of(_PLANNED, case)) for case in cases]
    data = document([CaseResult(case) for case in cases], facts, None)
    return Report(data, Table((Column("experiment"), *_PLANNED), rows))


def suite_report(
    chosen: Sequence[Experiment],
    results: Sequence[CaseResult],
    facts: Mapping[str, object],
    stopped: str | None,
    before: Rates | None,
    *,
    exit_code: ExitCode,
) -> Report:
    """A section per experiment; given an earlier run, also its rates, and by how much they have grown."""
    columns = (Column("experiment"), Column("case"), *_MEASURED, *(_COMPARED if before is not None else ()), _ERROR)
    rows = [(result.case.experiment, *_row(result, before)) for result in results]
    data = document(results, facts, stopped)
    if before is not None:
        data["compared"] = [
            {
                "experiment": result.case.experiment,
                "label": result.case.label,
                **dict(zip(("before_per_sec", "ratio"), _compared(result, before), strict=True)),
            }
            for result in results
        ]
    sections = [
        _section(experiment, experiment_results, before)
        for experiment, experiment_results in by_experiment(chosen, results)
    ]
    return Report(data, Table(columns, rows), sections, exit_code=exit_code)


def _section(experiment: Experiment, results: Sequence[CaseResult], before: Rates | None) -> Section:
    """Leave out columns that no result of an experiment has."""
    heading = Column("case", Kind.NUMBER, title=_HEADINGS[experiment.name])
    columns = (heading, *_MEASURED, *(_COMPARED if before is not None else ()), _ERROR)
    table = Table(columns, [_row(result, before) for result in results])
    return Section(experiment.title, table.without_empty(keeps=("case",)))


def _row(case: CaseResult, before: Rates | None) -> tuple[object, ...]:
    return (
        case.case.label,
        *map(_short, cells_of(_MEASURED, case)),
        *(_compared(case, before) if before is not None else ()),
        case.error,
    )


def _compared(case: CaseResult, before: Rates) -> tuple[object, object]:
    earlier = before.get((case.case.experiment, case.case.label))
    if earlier is None:
        return None, None
    return round(earlier), None if case.rate is None or not earlier else round(case.rate / earlier, 2)


def _short(value: object) -> float | int | None:
    """Return a figure with no more digits than are known."""
    if not isinstance(value, float | int):
        return None
    return round(value) if value >= 1000 else round(value, 2)


# --- pictures


def write_plot(path: Path, chosen: Sequence[Experiment], results: Sequence[CaseResult], before: Rates | None) -> None:
    """Write the rates as bars: an SVG picture, or an HTML page with a table below each."""
    parts = by_experiment(chosen, results)
    if path.suffix == ".svg":
        height = 0
        drawn = []
        for experiment, experiment_results in parts:
            drawn.append(f'<g transform="translate(0,{height})">{_bars(experiment, experiment_results, before)}</g>')
            height += _height(experiment_results, before) + 10
        path.write_text(_svg("".join(drawn), height), "utf-8")
        return
    body = "".join(
        _svg(_bars(experiment, experiment_results, before), _height(experiment_results, before))
        + _html_table(_section(experiment, experiment_results, before))
        for experiment, experiment_results in parts
    )
    style = "body{font:14px sans-serif;margin:2em}td,th{padding:2px 10px;text-align:right}"
    page = f'<!doctype html><meta charset="utf-8"><title>klamm perf suite</title><style>{style}</style>{body}\n'
    path.write_text(page, "utf-8")


def _height(results: Sequence[CaseResult], before: Rates | None) -> int:
    published = sum(result.published_per_sec is not None for result in results)
    return 40 + (len(results) * (1 if before is None else 2) + published) * _ROW_HEIGHT


def _svg(content: str, height: int) -> str:
    width = _LABEL_WIDTH + _PLOT_WIDTH + 120
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{content}</svg>\n'
    )


def _bars(experiment: Experiment, results: Sequence[CaseResult], before: Rates | None) -> str:
    rows: list[tuple[str, float, str]] = []
    for result in results:
        rows.append((result.case.label, result.rate or 0.0, "#2b6cb0"))
        if before is not None:
            rows.append(("before", before.get((experiment.name, result.case.label), 0.0), "#a0aec0"))
        if result.published_per_sec is not None:
            rows.append(("the articles", result.published_per_sec, "#e2e8f0"))
    largest = max((rate for _, rate, _ in rows), default=0.0) or 1.0
    drawn = [f'<text x="4" y="18" font-weight="bold">{html.escape(experiment.title)}: records a second</text>']
    for index, (label, rate, colour) in enumerate(rows):
        y = 30 + index * _ROW_HEIGHT
        width = round(_PLOT_WIDTH * rate / largest, 1)
        drawn.append(
            f'<text x="{_LABEL_WIDTH - 8}" y="{y + 11}" text-anchor="end">{html.escape(label)}</text>'
            f'<rect x="{_LABEL_WIDTH}" y="{y}" width="{width}" height="{_BAR_HEIGHT}" fill="{colour}"/>'
            f'<text x="{_LABEL_WIDTH + width + 6}" y="{y + 11}">{rate:,.0f}</text>'
        )
    return "".join(drawn)


def _html_table(section: Section) -> str:
    assert isinstance(section.body, Table)
    head = "".join(f"<th>{html.escape(column.heading)}</th>" for column in section.body.columns)
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{html.escape(human_text(column.kind, value))}</td>"
            for column, value in zip(section.body.columns, row, strict=True)
        )
        + "</tr>"
        for row in section.body.rows
    )
    return f"<table><tr>{head}</tr>{rows}</table>"
