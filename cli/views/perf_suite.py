"""A run of ``klamm perf suite``: a table with bars per experiment in the terminal, and the same as SVG or HTML.

Where the articles published a rate, it stands beside the one that was measured.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cli.exit_codes import ExitCode
from cli.output.report import Column, Drawing, Kind, Report, Section, Table, cells_of
from cli.output.values import human_text
from engine.admin.perf.suite import Case, CaseResult, Experiment, WatchedDisks, by_experiment, bytes_on_disks, document
from engine.admin.perf.suite_run import SuiteOptions
from engine.common.quantities import counted, size_text

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
_COMPARED = (
    Column("before_per_sec", Kind.NUMBER, title="Before/s"),
    Column("ratio", Kind.NUMBER, title="Ratio"),
)
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
        *map(_rounded, cells_of(_MEASURED, case)),
        *(_compared(case, before) if before is not None else ()),
        case.error,
    )


def _compared(case: CaseResult, before: Rates) -> tuple[object, object]:
    earlier = before.get((case.case.experiment, case.case.label))
    if earlier is None:
        return None, None
    return round(earlier), None if case.rate is None or not earlier else round(case.rate / earlier, 2)


def _rounded(value: object) -> float | int | None:
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
