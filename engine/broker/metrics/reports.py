"""Metrics as reporters write them: Yammer's files of CSV, Graphite's plain protocol, and lines for people.

MBeans of single partitions are left out everywhere: there may be a hundred thousand, and Prometheus and Jolokia have
them. Sources: CsvReporter and GraphiteReporter of Yammer Metrics 2.2, which Kafka 3.9 uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from engine.broker.metrics.mbeans import MBean

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


class CsvRow(NamedTuple):
    """One metric's line, the file it belongs to, and that file's first line."""

    file: str
    header: str
    line: str


def reported(mbeans: Iterable[MBean]) -> Iterator[MBean]:
    """Yield what reporters write: all but single partitions."""
    return (mbean for mbean in mbeans if not any(key == "partition" for key, _ in mbean.tags))


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
