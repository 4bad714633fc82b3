"""A command's result: the data, its rows with typed columns, and its form for people. Prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from cli.exit_codes import ExitCode
from engine.common.metric import Metric


class Kind(Enum):
    """What a column holds; decides alignment and how a value becomes text."""

    TEXT = auto()
    NUMBER = auto()
    BYTES = auto()
    DURATION_MS = auto()
    TIME = auto()
    LIST = auto()
    FLAG = auto()


class Tone(Enum):
    """What a value means to the user; colour is only one way to show it."""

    GOOD = "green"
    WARNING = "yellow"
    BAD = "bold red"
    QUIET = "dim"
    STRONG = "bold"
    COLD = "cyan"


class Drawing(Enum):
    """How a column of numbers is drawn beside its figures."""

    BAR = auto()
    HEAT = auto()
    """Shade and colour by the distance from the mean, which is that of all columns of the same ``scale``."""


ToneRule = Callable[[object], Tone | None]
RowToneRule = Callable[[Sequence[object]], Tone | None]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``name`` is its CSV header; ``title`` is what a person reads above it.

    ``drawing`` shows in a terminal's tables alone.
    """

    name: str
    kind: Kind = Kind.TEXT
    title: str = ""
    in_plain: bool = True
    tone: ToneRule | Mapping[Any, Tone] | Tone | None = None
    """By the value: a rule, a table, or the tone of whatever is there."""
    drawing: Drawing | None = None
    scale: str = ""
    """Drawn columns of the same scale can be compared with each other; "" is the column's own."""
    is_dispensable: bool = False
    """Left out if the terminal is too narrow for the whole table; the other formats always have it."""
    row_tone: RowToneRule | None = None
    """Replaces ``tone`` if the tone depends on other values of the row."""
    falls_below: bool = False
    """Free text in the last column. On a narrow terminal it has lines of its own, below its row."""

    @property
    def heading(self) -> str:
        return self.title or self.name.replace("_", " ").capitalize()

    def tone_in(self, row: Sequence[object], index: int) -> Tone | None:
        """Return what this column's value, at ``index`` of its row, means."""
        if self.row_tone is not None:
            return self.row_tone(row)
        value = row[index]
        match self.tone:
            case None:
                return None
            case Tone():
                return self.tone if value else None
            case Mapping():
                return self.tone.get(value)
        return self.tone(value)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values in the order of the columns; None is "none"."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[object]]

    @classmethod
    def of(cls, columns: tuple[Column, ...], things: Iterable[object]) -> Table:
        """Return a row per thing: its attributes that are called like the columns."""
        return cls(columns, [cells_of(columns, thing) for thing in things])

    def records(self) -> list[dict[str, object]]:
        """Return the rows as data, each value under the name of its column."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def without_empty(self, *, keeps: Collection[str]) -> Table:
        """Return the table for people: without its empty columns, except those called ``keeps``."""
        return self.unless_empty(*(column.name for column in self.columns if column.name not in keeps))

    def unless_empty(self, *names: str) -> Table:
        """Return the table without those of the columns with these names that hold nothing, or only False."""
        return self._only(
            index
            for index, column in enumerate(self.columns)
            if column.name not in names or any(map(_is_told, (row[index] for row in self.rows)))
        )

    def with_only(self, names: Collection[str]) -> Table:
        """Return the table with only the columns of these names, in the same order."""
        return self._only(index for index, column in enumerate(self.columns) if column.name in names)

    def _only(self, places: Iterable[int]) -> Table:
        kept = list(places)
        return Table(tuple(self.columns[i] for i in kept), [tuple(row[i] for i in kept) for row in self.rows])


def cells_of(columns: Sequence[Column], thing: object) -> tuple[object, ...]:
    """Return the attributes of a thing that are called like the columns."""
    return tuple(getattr(thing, column.name) for column in columns)


def _is_told(value: object) -> bool:
    return value is not False and value not in (None, (), [], "")


@dataclass(frozen=True, slots=True)
class Fields:
    """Names and values one below the other, for a single thing."""

    pairs: Sequence[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the output for people; ``text`` lines are above the body."""

    title: str | None = None
    body: Table | Fields | None = None
    text: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class KafkaText:
    """What one of Kafka's tools writes, line ends included: ``out`` on stdout, ``said`` on stderr."""

    out: str
    said: str = ""


class Nothing(str):
    """A note that there is nothing of a kind, as far as the principal may see: who logs in may not see all."""


class Advice(str):
    """A note that ends with a command of klamm about the same cluster: it gets the options that named the cluster."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a command returns.

    ``data`` is what json, jsonl and yaml carry (dataclasses, lists, mappings); ``table`` is what plain and csv carry;
    ``sections`` is what a person sees on a terminal, where that is more than the table. ``notes`` are talk, on stderr.
    """

    data: object
    table: Table
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    exit_code: ExitCode = ExitCode.DONE
    metrics: Sequence[Metric] = ()
    """What Prometheus gets, if the command supports it."""
    as_kafka: Callable[[], KafkaText | None] | None = None
    """Returns what Kafka's tool of this command prints; None if the tool has no words for it, such as a dry run."""
    is_file: bool = False
    """``data`` is what another command reads as a file: nothing is added to it."""

    def ending(self, code: ExitCode) -> Report:
        """Return the report with another exit code, unless that is DONE: then its own stays."""
        return replace(self, exit_code=code or self.exit_code)
