"""What writers and workers of transactions were promised, and what must hold of it afterwards. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise


class Outcome(Enum):
    """What a producer knows about the end of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Written:
    """One transaction: its values by partition, in order, and its outcome."""

    name: str
    values: dict[int, list[str]] = field(default_factory=dict)
    outcome: Outcome = Outcome.UNKNOWN


@dataclass
class History:
    """What the clients did, and what a reader finds at the end.

    Attributes:
        read: committed values by partition of the input, in order; ``output`` the same of what workers wrote.
        ends: of the input: last stable offset and high watermark by partition, when nothing was under way.
        last: the offset after the last committed record of the input, by partition. Markers may follow it.
        positions: the group's offsets in the input.
        stable: last stable offsets of the input in the order in which they were seen.
    """

    written: list[Written] = field(default_factory=list)
    read: dict[int, list[str]] = field(default_factory=dict)
    output: dict[int, list[str]] = field(default_factory=dict)
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    stable: dict[int, list[int]] = field(default_factory=dict)


def violations(history: History) -> list[str]:
    """Return what breaks a promise. Pure."""
    return [
        *_of_input(history),
        *_of_output(history),
        *(
            f"input-{partition}: the last stable offset stays at {stable}, records end at {end}"
            for partition, (stable, end) in history.ends.items()
            if stable != end
        ),
        *(
            f"input-{partition}: the last stable offset went back from {before} to {after}"
            for partition, seen in history.stable.items()
            for before, after in pairwise(seen)
            if after < before
        ),
    ]


def _of_input(history: History) -> list[str]:
    violations = []
    counts = Counter(value for values in history.read.values() for value in values)
    violations += [f"{value} is read {count} times" for value, count in counts.items() if count > 1]
    known = set()
    for transaction in history.written:
        wanted = [value for values in transaction.values.values() for value in values]
        known |= set(wanted)
        read = [value for value in wanted if counts[value]]
        lost = len(wanted) - len(read)
        if transaction.outcome is Outcome.COMMITTED and lost:
            violations.append(f"{transaction.name} was committed, and {lost} of its {len(wanted)} records are lost")
        elif transaction.outcome is Outcome.ABORTED and read:
            violations.append(f"{transaction.name} was aborted, and {len(read)} of its records are read")
        elif transaction.outcome is Outcome.UNKNOWN and read and lost:
            violations.append(f"{transaction.name} is seen in part: {len(read)} of {len(wanted)} records")
        for partition, values in transaction.values.items():
            order = list(dict.fromkeys(value for value in history.read.get(partition, ()) if value in set(values)))
            if order != [value for value in values if value in order]:
                violations.append(f"{transaction.name}: another order in partition {partition}")
    return violations + [f"{value} was never written" for value in counts if value not in known]


def _of_output(history: History) -> list[str]:
    made = Counter(value for values in history.output.values() for value in values)
    read = Counter(value for values in history.read.values() for value in values)
    violations = [f"the output has {value} {count} times" for value, count in made.items() if count > 1]
    violations += [f"the output has {value}, which is not in the input" for value in made if value not in read]
    violations += [f"{value} is missing in the output" for value in read if value not in made]
    violations += [
        f"input-{partition}: the group's offset is {history.positions.get(partition)}, the last record is before {last}"
        for partition, last in history.last.items()
        if not last <= history.positions.get(partition, -1) <= history.ends.get(partition, (last, last))[0]
    ]
    return violations
