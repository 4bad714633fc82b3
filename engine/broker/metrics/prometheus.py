"""MBeans for Prometheus: names of attributes by the JMX exporter's usual rules for Kafka, and the page with them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from engine.broker.metrics.mbean import MBean, Tags, quoted
from engine.common.metric import label_text

_PROCESS: Final = {
    "CpuSeconds": ("process_cpu_seconds_total", True),
    "MaxOpenFiles": ("process_max_fds", False),
    "OpenFiles": ("process_open_fds", False),
    "ResidentBytes": ("process_resident_memory_bytes", False),
}
"""The names that every program has in Prometheus for these of ``klamm:type=Process``; boards rely on them."""

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]+")
_PERCENTILE: Final = re.compile(r"(\d+)thPercentile")
_PER_SECOND: Final = re.compile(r"(.+)PerSec\w*")
_PERCENT: Final = re.compile(r"(.+)Percent\w*")
_IDLE: Final = re.compile(r"(.*Idle)Percent")


class Series(NamedTuple):
    """One attribute under its name in Prometheus, with its labels as text."""

    family: str
    is_counter: bool
    labels: str
    value: float


def series_of(mbean: MBean) -> Iterator[Series]:
    """Yield what the JMX exporter makes of an MBean by its usual rules for Kafka (its example for 2.0 and later).

    What those rules leave out, the windowed figures of Kafka's own metrics, gets names in the same manner. klamm's own
    MBeans do as well. A gauge of percent has a second name, which older rules give and Strimzi's.
    """
    for attribute, family, is_counter, labels in _series_names(mbean):
        yield Series(family, is_counter, labels, float(mbean.attributes[attribute]))  # type: ignore[arg-type]


def _series_names(mbean: MBean) -> Iterator[tuple[str, str, bool, str]]:
    """Yield attribute, family, whether it is a counter, and labels of each series."""
    stem = (
        family_name(f"{mbean.domain}_{mbean.type}")
        if mbean.name is None
        else family_name(f"{mbean.domain}_{mbean.type}_{mbean.name}")
    )
    labels = labels_text(mbean.tags)
    for attribute, value in mbean.attributes.items():
        if not isinstance(value, int | float):
            continue
        if mbean.name is None:
            yield attribute, f"{stem}_{family_name(attribute)}", False, labels
        elif attribute == "Value":
            name, is_counter = _PROCESS.get(mbean.name, (stem, False)) if mbean.domain == "klamm" else (stem, False)
            yield attribute, name, is_counter, labels
            if percent := _IDLE.fullmatch(mbean.name):
                yield attribute, family_name(f"{mbean.domain}_{mbean.type}_{percent[1]}_percent"), False, labels
        elif attribute == "Count":
            per_second = _PER_SECOND.fullmatch(mbean.name)
            if per_second:
                family = family_name(f"{mbean.domain}_{mbean.type}_{per_second[1]}_total")
                yield attribute, family, True, labels_text(_as_two(mbean.tags))
            else:
                yield attribute, f"{stem}_count_total", True, labels
        elif percentile := _PERCENTILE.fullmatch(attribute):
            yield attribute, stem, False, labels_text((*mbean.tags, ("quantile", f"0.{percentile[1]}")))
        elif attribute == "MeanRate" and not mbean.tags and (percent := _PERCENT.fullmatch(mbean.name)):
            yield attribute, family_name(f"{mbean.domain}_{mbean.type}_{percent[1]}_percent"), False, ""


def _as_two(tags: Tags) -> Tags:
    """Return three tags as the rules do, which know two: the first takes in what they cannot tell apart."""
    if len(tags) <= 2:
        return tags
    *first, (key, value), last = tags
    return ((", ".join([*(f"{k}={v}" for k, v in first), key]), value), last)


def family_name(text: str) -> str:
    """Return what a text is in the name of a series."""
    return _NOT_IN_NAMES.sub("_", text).lower()


def labels_text(tags: Iterable[tuple[str, str]]) -> str:
    inner = ",".join(f'{_NOT_IN_NAMES.sub("_", key)}="{label_text(quoted(value))}"' for key, value in tags)
    return f"{{{inner}}}" if inner else ""


class SeriesPlan(NamedTuple):
    """What of an MBean a page shows: attribute, family, whether it is a counter, and how its line begins."""

    attributes: int
    series: tuple[tuple[str, str, bool, str], ...]


SeriesPlans = dict[tuple[object, ...], SeriesPlan]
"""By all of an MBean but its attributes. To find the names again for every page would cost most of its time."""


WrittenPieces = dict[tuple[str, int], tuple[list[int], bytes]]
"""By family and first line: numbers, and the piece that they made. Most figures of partitions hardly ever change."""


class _Family:
    """The lines of one name: those that are text already, and columns of numbers that ``pieces`` writes out."""

    __slots__ = ("columns", "is_counter", "lines")

    def __init__(self, *, is_counter: bool) -> None:
        self.is_counter = is_counter
        self.lines: list[str] = []
        self.columns: list[tuple[list[str], list[int], WrittenPieces]] = []
        """Labels, numbers, and the pieces that an earlier page had."""


class PrometheusPage:
    """A page for a scraper: all series of one name together, as the format demands."""

    def __init__(self, plans: SeriesPlans | None = None) -> None:
        """``plans`` are those of the page before; this one adds to them."""
        self._plans = {} if plans is None else plans
        self._families: dict[str, _Family] = {}

    def add(self, mbean: MBean) -> None:
        attributes = mbean.attributes
        plan = self._plans.get(mbean[:4])
        if plan is None or plan.attributes != len(attributes):
            series = tuple((name, family, is_counter, f"{family}{labels} ")
                           for name, family, is_counter, labels in _series_names(mbean))  # fmt: skip
            plan = self._plans[mbean[:4]] = SeriesPlan(len(attributes), series)
        for attribute, family, is_counter, begin in plan.series:
            value = float(attributes[attribute])  # type: ignore[arg-type]
            # The difference is not a number only if the value is none, or infinite.
            text = repr(value) if value - value == 0 else number_text(value)
            self._family(family, is_counter=is_counter).lines.append(f"{begin}{text}\n")

    def add_numbers(
        self,
        families: Sequence[str | None],
        labels: list[str],
        numbers: list[int],
        *,
        is_counter: bool = False,
        written: WrittenPieces | None = None,
    ) -> None:
        """Add a number of each family for each of ``labels``; ``pieces`` makes text of them.

        Args:
            families: their names; None: this number is not shown.
            labels: the labels of each thing that has numbers, as text, and a space.
            numbers: those of the first thing in the order of the families, then those of the second one, and so on.
            is_counter: they only grow.
            written: the pieces of earlier pages with the very same labels.
        """
        for position, family in enumerate(families):
            if family is not None and labels:
                column = (labels, numbers[position :: len(families)], {} if written is None else written)
                self._family(family, is_counter=is_counter).columns.append(column)

    def _family(self, name: str, *, is_counter: bool) -> _Family:
        known = self._families.get(name)
        if known is None:
            known = self._families[name] = _Family(is_counter=is_counter)
        return known

    def pieces(self) -> Iterator[bytes]:
        """Yield the page in pieces. Any thread may ask, once nothing more is added."""
        for name, family in sorted(self._families.items()):
            header = f"# TYPE {name} {'counter' if family.is_counter else 'gauge'}\n"
            yield (header + "".join(family.lines)).encode()
            for labels, column, written in family.columns:
                for begin in range(0, len(labels), _LINES):
                    numbers = column[begin : begin + _LINES]
                    known = written.get((name, begin))
                    if known is None or known[0] != numbers:
                        rows = zip(labels[begin : begin + _LINES], numbers, strict=True)
                        # What two lines have between them is the cheapest to write as the separator of a join.
                        text = f".0\n{name}".join([f"{label}{number}" for label, number in rows])
                        known = written[name, begin] = numbers, f"{name}{text}.0\n".encode()
                    yield known[1]


_LINES: Final = 1000
"""This many fit into the processor's cache, and into memory that can be used again at once."""


def number_text(value: float) -> str:
    """Return a number as Prometheus reads it."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)
