"""An MBean as a plain value, and the name under which Prometheus knows each of its attributes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from engine.common.metric import label_text

Tags = tuple[tuple[str, str], ...]

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]+")
_PERCENTILE: Final = re.compile(r"(\d+)thPercentile")
_PER_SECOND: Final = re.compile(r"(.+)PerSec\w*")
_PERCENT: Final = re.compile(r"(.+)Percent\w*")
_PLAIN: Final = re.compile(r"[\w\-% \t.]*")


class MBean(NamedTuple):
    """Domain, type, name (None: it has none), further properties, and attributes."""

    domain: str
    type: str
    name: str | None
    tags: Tags
    attributes: Mapping[str, object]

    @property
    def object_name(self) -> str:
        """Its name in JMX. Values with other characters than Kafka expects are quoted."""
        name = [] if self.name is None else [("name", self.name)]
        return f"{self.domain}:{','.join(f'{k}={quoted(v)}' for k, v in [('type', self.type), *name, *self.tags])}"


MBeans = Iterator[MBean]


def gauges(domain: str, type_: str, values: Mapping[str, object], tags: Tags = ()) -> MBeans:
    """Yield an MBean with the attribute ``Value`` for each name."""
    for name, value in values.items():
        yield MBean(domain, type_, name, tags, {"Value": value})


def quoted(value: str) -> str:
    """Return a property's value as JMX writes it."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = re.sub(r'([\\"*?])', r"\\\1", value).replace("\n", "\\n")
    return f'"{escaped}"'


class Series(NamedTuple):
    """One attribute under its name in Prometheus, with its labels as text."""

    family: str
    is_counter: bool
    labels: str
    value: float


def series_of(mbean: MBean) -> Iterator[Series]:
    """Yield what the JMX exporter makes of an MBean by its usual rules for Kafka (its example for 2.0 and later).

    What those rules leave out, the windowed figures of Kafka's own metrics, gets names in the same manner. klamm's own
    MBeans do as well.
    """
    stem = (
        _name(f"{mbean.domain}_{mbean.type}")
        if mbean.name is None
        else _name(f"{mbean.domain}_{mbean.type}_{mbean.name}")
    )
    labels = _labels(mbean.tags)
    for attribute, raw in mbean.attributes.items():
        if isinstance(raw, bool):
            raw = int(raw)
        if not isinstance(raw, int | float):
            continue
        value = float(raw)
        if mbean.name is None:
            yield Series(f"{stem}_{_name(attribute)}", False, labels, value)
        elif attribute == "Value":
            yield Series(stem, False, labels, value)
        elif attribute == "Count":
            per_second = _PER_SECOND.fullmatch(mbean.name)
            if per_second:
                family = _name(f"{mbean.domain}_{mbean.type}_{per_second[1]}_total")
                yield Series(family, True, _labels(_as_two(mbean.tags)), value)
            else:
                yield Series(f"{stem}_count_total", True, labels, value)
        elif percentile := _PERCENTILE.fullmatch(attribute):
            yield Series(stem, False, _labels((*mbean.tags, ("quantile", f"0.{percentile[1]}"))), value)
        elif attribute == "MeanRate" and not mbean.tags and (percent := _PERCENT.fullmatch(mbean.name)):
            yield Series(_name(f"{mbean.domain}_{mbean.type}_{percent[1]}_percent"), False, "", value)


def _as_two(tags: Tags) -> Tags:
    """Return three tags as the rules do, which know two: the first takes in what they cannot tell apart."""
    if len(tags) <= 2:
        return tags
    *first, (key, value), last = tags
    return ((", ".join([*(f"{k}={v}" for k, v in first), key]), value), last)


def _name(text: str) -> str:
    return _NOT_IN_NAMES.sub("_", text).lower()


def _labels(tags: Iterable[tuple[str, str]]) -> str:
    inner = ",".join(f'{_NOT_IN_NAMES.sub("_", key)}="{label_text(quoted(value))}"' for key, value in tags)
    return f"{{{inner}}}" if inner else ""


class PrometheusPage:
    """A page for a scraper: all series of one name together, as the format demands."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[bool, list[str]]] = {}

    def add(self, mbean: MBean) -> None:
        """Add an MBean's series."""
        for family, is_counter, labels, value in series_of(mbean):
            known = self._families.get(family)
            if known is None:
                known = self._families[family] = (is_counter, [])
            known[1].append(f"{family}{labels} {number_text(value)}\n")

    def pieces(self) -> Iterator[str]:
        """Yield the page, a family at a time."""
        for family, (is_counter, lines) in sorted(self._families.items()):
            yield f"# TYPE {family} {'counter' if is_counter else 'gauge'}\n" + "".join(lines)


def number_text(value: float) -> str:
    """Return a number as Prometheus reads it."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)
