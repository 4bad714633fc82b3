"""An MBean as a plain value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

Tags = tuple[tuple[str, str], ...]

OF_PARTITIONS: Final = (("kafka.cluster", "Partition"), ("kafka.log", "Log"), ("kafka.server", "FetcherLagMetrics"))
"""Domain and type of those that each partition has."""

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
