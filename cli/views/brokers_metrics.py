"""What brokers measure: traffic, then work; for people, the largest topics and the slowest requests below."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import fields

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table, Tone
from engine.admin.brokers.metrics import IDLE_LOW_PERCENT, BrokerFigures, Rate, TopicFigures

SAY_WHERE = (
    "say where brokers serve their metrics: --metrics-url 'http://{host}:7071/metrics', or the same as metrics in the "
    "profile"
)
SHOWN_MAX = 20
"""Topics, and requests, in a table for a person."""

_SPANS = (("per_s", ""), ("five_minutes", "5 min"), ("fifteen_minutes", "15 min"))


def _rate_columns(name: str, kind: Kind, title: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{name}_{span}", kind, title=short or title, is_dispensable=bool(short)) for span, short in _SPANS
    )


def _idle_tone(value: object) -> Tone | None:
    return Tone.WARNING if isinstance(value, int | float) and value < IDLE_LOW_PERCENT else None


_WHO = Column("broker", Kind.NUMBER)
_TRAFFIC = (
    *_rate_columns("messages_in", Kind.NUMBER, "Messages/s"),
    *_rate_columns("bytes_in", Kind.BYTES, "In/s"),
    *_rate_columns("bytes_out", Kind.BYTES, "Out/s"),
)
_WORK = (
    Column("idle_percent", Kind.NUMBER, title="Idle %", tone=_idle_tone),
    Column("produce_p99_ms", Kind.NUMBER, title="Produce p99 ms"),
    Column("fetch_p99_ms", Kind.NUMBER, title="Fetch p99 ms"),
    Column("produce_throttle_ms", Kind.NUMBER, title="throttled ms", tone=Tone.WARNING),
    Column("fetch_throttle_ms", Kind.NUMBER, title="throttled ms", tone=Tone.WARNING),
    Column("isr_shrinks_total", Kind.NUMBER, title="ISR shrinks"),
    Column("isr_expands_total", Kind.NUMBER, title="expands"),
    Column("under_replicated", Kind.NUMBER, title="Under-replicated", tone=Tone.BAD),
)
_SHOWN_TOGETHER = ((0, 1, 3, 2, 4), (5, 6, 7))
"""Columns of ``_WORK`` in a table for a person: how long requests take, then replicas. All at once are too wide."""
_TELLS = (Column("source"), Column("where", is_dispensable=True))
_REASON = Column("reason", tone=Tone.BAD, falls_below=True)
_REQUEST = (Column("api", title="Request"), Column("count", Kind.NUMBER), Column("p99_ms", Kind.NUMBER, title="p99 ms"))
_MEASURED = Column("measured_s", Kind.NUMBER)
_ALL = (_WHO, Column("topic"), *_REQUEST, *_TRAFFIC, *_WORK, *_TELLS, _MEASURED, _REASON)
"""Named as in JSON: ``bytes_in_five_minutes`` is ``five_minutes`` of ``bytes_in``."""


def metrics_report(figures: Sequence[BrokerFigures], *, is_for_people: bool = True) -> Report:
    """A row per broker; machines get rows for its topics and requests below it."""
    rows = [row for figure in figures for row in _machine_rows(figure)]
    traffic = [(figure.broker, *_rates(figure), figure.told_by, figure.where, figure.trouble) for figure in figures]
    work = [(figure.broker, _work(figure)) for figure in figures if figure.told_by]
    sections = [
        Section(body=Table((_WHO, *_TRAFFIC, *_TELLS, _REASON), traffic).without_empty(keeps=_KEPT)),
        *(
            Section(
                body=Table(
                    (_WHO, *(_WORK[index] for index in shown)),
                    [(broker, *(cells[index] for index in shown)) for broker, cells in work],
                )
            )
            for shown in (_SHOWN_TOGETHER if work else ())
        ),
    ]
    notes = list(_notes(figures))
    if is_for_people:
        sections += _topic_sections(figures, notes) + _request_sections(figures, notes)
    code = ExitCode.BAD_ANSWER if any(figure.trouble for figure in figures) else ExitCode.DONE
    return Report([_data(figure) for figure in figures], Table(_ALL, rows), sections, tuple(notes), code)


_KEPT = ("broker", "messages_in_per_s", "bytes_in_per_s", "bytes_out_per_s", "source")


def _data(figures: BrokerFigures) -> dict[str, object]:
    """Return the figures by their names in JSON, with the rates of the last minute beside the others."""
    return {
        **{_NAMES.get(field.name, field.name): getattr(figures, field.name) for field in fields(figures)},
        "messages_in_per_s": figures.messages_in.now,
        "bytes_in_per_s": figures.bytes_in.now,
        "bytes_out_per_s": figures.bytes_out.now,
    }


_NAMES = {"told_by": "source", "trouble": "reason", "handler_idle_percent": "idle_percent"}


def _machine_rows(figures: BrokerFigures) -> Iterator[tuple[object, ...]]:
    nothing = (None,) * len(_WORK)
    source = (figures.told_by, figures.where, _rounded(figures.measured_s, 1))
    yield (figures.broker, None, None, None, None, *_rates(figures), *_work(figures), *source, figures.trouble)
    for topic in figures.topics or ():
        yield (figures.broker, topic.topic, None, None, None, *_rates(topic), *nothing, *source, None)
    for request in figures.requests or ():
        rates = (None,) * len(_TRAFFIC)
        yield (
            figures.broker,
            None,
            request.api,
            _whole(request.count),
            request.p99_ms,
            *rates,
            *nothing,
            *source,
            None,
        )


def _rates(figures: BrokerFigures | TopicFigures) -> tuple[object, ...]:
    return (*_spans(figures.messages_in, 1), *_spans(figures.bytes_in, 0), *_spans(figures.bytes_out, 0))


def _spans(rate: Rate, digits: int) -> tuple[object, ...]:
    return tuple(_rounded(value, digits) for value in (rate.now, rate.five_minutes, rate.fifteen_minutes))


def _rounded(value: float | None, digits: int) -> int | float | None:
    if value is None:
        return None
    return round(value, digits) if digits else round(value)


def _work(figures: BrokerFigures) -> tuple[object, ...]:
    return (
        _rounded(figures.handler_idle_percent, 1),
        _rounded(figures.produce_p99_ms, 1),
        _rounded(figures.fetch_p99_ms, 1),
        _rounded(figures.produce_throttle_ms, 1),
        _rounded(figures.fetch_throttle_ms, 1),
        _whole(figures.isr_shrinks.total),
        _whole(figures.isr_expands.total),
        figures.under_replicated,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _topic_sections(figures: Sequence[BrokerFigures], notes: list[str]) -> list[Section]:
    rows = [(figure.broker, topic.topic, *_rates(topic)) for figure in figures for topic in figure.topics or ()]
    shown = heapq.nlargest(SHOWN_MAX, rows, key=lambda row: (row[5] or 0) + (row[8] or 0))  # type: ignore[operator]
    if len(shown) < len(rows):
        notes.append(f"the {len(shown)} largest of {len(rows)} topics of brokers; all: -o plain")
    return [Section("Topics", Table((_WHO, Column("topic"), *_TRAFFIC), shown))] if rows else []


def _request_sections(figures: Sequence[BrokerFigures], notes: list[str]) -> list[Section]:
    rows = [
        (figure.broker, request.api, _whole(request.count), _rounded(request.p99_ms, 1))
        for figure in figures
        for request in figure.requests or ()
    ]
    shown = heapq.nlargest(SHOWN_MAX, rows, key=lambda row: row[3] or 0)
    if len(shown) < len(rows):
        notes.append(f"the {len(shown)} slowest of {len(rows)} kinds of request of brokers; all: -o plain")
    return [Section("Requests", Table((_WHO, *_REQUEST), shown))] if rows else []


def _notes(figures: Sequence[BrokerFigures]) -> Iterator[str]:
    """Yield why cells are empty."""
    if not figures:
        yield "no broker is alive"
    measured = [figure for figure in figures if figure.measured_s is not None]
    if measured:
        which = ", ".join(str(broker.broker) for broker in measured)
        yield f"rates over {measured[0].measured_s:.1f} s of broker {which}, which reports only counts"
    for figure in figures:
        missing = [
            _TITLES[field.name] for field in fields(figure) if field.name in _TITLES and _is_missing(figure, field.name)
        ]
        if figure.told_by and missing:
            yield f"broker {figure.broker} does not report: {', '.join(missing)}"
    if any(figure.trouble and figure.where is None for figure in figures):
        yield SAY_WHERE


_TITLES = {
    "messages_in": "messages",
    "bytes_in": "bytes in",
    "bytes_out": "bytes out",
    "handler_idle_percent": "idle handlers",
    "produce_p99_ms": "p99 of Produce",
    "fetch_p99_ms": "p99 of Fetch",
    "produce_throttle_ms": "throttling of Produce",
    "fetch_throttle_ms": "throttling of Fetch",
    "isr_shrinks": "ISR shrinks",
    "isr_expands": "ISR expands",
    "under_replicated": "under-replicated partitions",
}


def _is_missing(figures: BrokerFigures, name: str) -> bool:
    value = getattr(figures, name)
    return value is None or value == Rate()
