"""A place in the dashboard: a screen and its subject; and the way there. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tui.actions import PAGES

_TITLES = {name: title for name, _, title in PAGES} | {"group": "Group", "query": "Query", "clusters": "Clusters"}
VISITS_MAX = 200
"""How many screens back one can go."""
_PARENTS = {"group": "groups", "query": "spark", "partition": "partitions"}


class Only(StrEnum):
    """What rows of a screen must have in common to belong to a finding."""

    OFFLINE = "offline"
    UNDER_MIN_ISR = "under min ISR"
    MIN_ISR_ABOVE_FACTOR = "min ISR above factor"
    UNDER_REPLICATED = "under-replicated"
    BEHIND = "behind"
    AGAINST_RACKS = "in too few racks"
    NOT_PREFERRED = "not preferred"
    HELD_UP = "held by a transaction"
    DOWN = "down"
    SILENT = "silent"
    DIR_FAILED = "log dir failed"
    STUCK = "stuck"
    UNHEALTHY = "unhealthy"
    DELETION_STUCK = "deletion stuck"
    SETTINGS_UNKNOWN = "settings not known"
    UNREADABLE = "unreadable"
    FILLING = "filling up"
    WARNINGS = "warnings and failures"
    FAILURES = "failures"


class QueryKey(NamedTuple):
    """Which source of which query of Spark; a name alone may stand for several."""

    name: str
    kind: str
    path: str
    query_id: str
    source: str


@dataclass(frozen=True, slots=True)
class Location:
    """A screen, narrowed to what was opened. ``row`` is where the cursor goes first, ``only`` what its rows must be."""

    page: str
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    group: str | None = None
    query: QueryKey | None = None
    path: str | None = None
    row: str | None = None
    only: Only | None = None
    incident: int | None = None
    run: int | None = None
    """The number of an event; of what came together with it."""

    @property
    def screen(self) -> str:
        """The screen that keys and tabs go by: one group belongs to groups."""
        return _PARENTS.get(self.page, self.page)

    @property
    def breadcrumbs(self) -> tuple[str, ...]:
        """The way here from the top."""
        page = self.screen
        if self.page == "partition":
            return _TITLES["topics"], self.topic or "", str(self.partition)
        if self.page == "logs" and self.topic is not None:
            return _TITLES["topics"], self.topic, str(self.partition), _TITLES["logs"]
        if self.page == "partitions" and self.topic is not None:
            return _TITLES["topics"], self.topic
        if self.page == "partitions" and self.broker is not None:
            return _TITLES["brokers"], str(self.broker)
        parts: list[str] = [_TITLES[page]]
        if self.group is not None:
            parts.append(self.group)
        if self.query is not None:
            parts.append(self.query.name)
        if self.incident is not None:
            parts.append(f"incident {self.incident}")
        if self.run is not None:
            parts.append("one moment")
        if self.path is not None and self.path != "/":
            parts += [part for part in self.path.split("/") if part]
        if self.only is not None:
            parts.append(self.only)
        return tuple(parts)


@dataclass(slots=True)
class History:
    """The screens that were visited, as a browser keeps them."""

    current: Location
    past: list[Location] = field(default_factory=list)
    future: list[Location] = field(default_factory=list)

    def visit(self, location: Location) -> None:
        """Go to another screen, and forget the screens ahead."""
        if location != self.current:
            self.past.append(self.current)
            del self.past[:-VISITS_MAX]
            self.current = location
            self.future.clear()

    def back(self) -> bool:
        """Go back; False at the first screen."""
        return self._go(self.past, self.future)

    def forward(self) -> bool:
        """Go forward again; False at the last screen."""
        return self._go(self.future, self.past)

    def _go(self, ahead: list[Location], behind: list[Location]) -> bool:
        if ahead:
            behind.append(self.current)
            self.current = ahead.pop()
            return True
        return False
