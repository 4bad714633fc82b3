"""What every operation of the dashboard has: a preview, a question, a result, and the command that does the same.

An operation decides nothing itself. ``prepare`` asks ``engine.admin`` what would happen; ``Prepared.run`` does it.
Both get an open cluster; a read-only one refuses there, whatever the dashboard has let through.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.reassignment.lock import plan_in_the_way
from engine.common.errors import KlammError, OperationError
from engine.common.model import address_text
from tui.drawing.cells import Cell, Tone
from tui.drawing.units import count, counted
from tui.remedies import planner_words, spelled

EXPECTED = (KlammError, OSError, TimeoutError)
"""What may go wrong with a cluster or a file. Anything else is a bug, and is logged with its traceback."""

LINES_MAX = 200
"""A preview lists this many partitions and counts the others."""
_BROKERS_MAX = 12
"""A sentence names at most this many."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an operation: a row per partition, group or setting, and what failed as a whole.

    ``verdict`` is the word for all of it, where "done" would say nothing. ``sums`` say what all rows together are;
    ``counts`` says how many of them became what.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: str = ""
    sums: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not self.errors and not any(cell.tone is Tone.BAD for row in self.rows for cell in row)

    @property
    def counts(self) -> str:
        """How many rows have which result: ``31 elected, 2 not needed``; empty for a single row."""
        if len(self.rows) < 2 or "result" not in self.columns:
            return ""
        at = self.columns.index("result")
        return ", ".join(
            f"{number} {word}" for word, number in Counter(row[at].text for row in self.rows).most_common()
        )


Run = Callable[[Cluster], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """An operation that was checked against the cluster as it is.

    Attributes:
        question: what will be done, as a question.
        lines: old and new, a line for each change.
        warnings: what the user should know before saying yes.
        command: the command that does the same.
        typed: what the user has to type to go on, if data can be lost; else y or n is enough.
        run: carries it out; None if there is nothing to do, and ``question`` says why.
        begins: starts what goes on by itself, instead of ``run``; its owner reports the outcome.
        touches: the topics whose replicas or throttles it changes, or that it deletes or grows; None: those of brokers.
    """

    question: str
    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    command: str = ""
    typed: str | None = None
    run: Run | None = None
    begins: Callable[[], None] | None = None
    touches: frozenset[str] | None = frozenset()


class Operation(Protocol):
    """Something to be done to a cluster."""

    asks: ClassVar[bool] = True
    """Whether it asks before it starts; an operation that only reads does not."""

    @property
    def title(self) -> str:
        """What it is, for the windows about it."""

    async def prepare(self, cluster: Cluster) -> Prepared:
        """Ask what would happen. Changes nothing.

        Raises:
            AdminError: it cannot be done.
        """


async def beside_plan(prepared: Prepared, cluster: Cluster) -> Prepared:
    """Return an operation with a warning if somebody is carrying out a plan that relies on what it touches."""
    if prepared.touches == frozenset() or (prepared.run is None and prepared.begins is None):
        return prepared
    holder = await plan_in_the_way(cluster, prepared.touches)
    if holder is None:
        return prepared
    message = f"a plan that relies on this is being carried out by {holder}: {holder.what}"
    return replace(prepared, warnings=(message, *prepared.warnings))


def command_text(words: Sequence[str], target: ClusterTarget | None) -> str:
    """Return a command of ``klamm`` for a cluster, ready to be typed; None: it needs no cluster."""
    return shlex.join(["klamm", *words, *(() if target is None else cluster_options(target))])


def repeated(option: str, values: Iterable[object]) -> list[str]:
    return [word for value in values for word in (option, str(value))]


def cluster_options(target: ClusterTarget) -> list[str]:
    """Return the options that name the cluster; the one that was started in this folder needs none."""
    if target.origin is Origin.LOCAL:
        return []
    files = {
        "--command-config": target.command_config,
        "--jaas-config": target.jaas_file,
        "--zk-tls-config-file": target.zk_tls_config,
    }
    named = [word for option, file in files.items() if file and str(file) != "-" for word in (option, str(file))]
    if target.origin is Origin.PROFILE:
        return ["--cluster", target.name, *named]
    options = [*named, *(["--zookeeper", target.zookeeper] if target.zookeeper else [])]
    if target.bootstrap:
        addresses = (address_text(host, port) for host, port in target.bootstrap)
        options += ["--bootstrap-server", ",".join(addresses)]
    return options + (["--via", target.via.value] if target.via else [])


def flow_text(gained: Counter[int], lost: Counter[int], before: Mapping[int, int]) -> str:
    """Return which brokers get more of something, then which lose some: the first of very many.

    ``before``: how many each has now; empty if that is not known.
    """
    gained, lost = gained - lost, lost - gained
    sentences = []
    for broker, more in (*sorted(gained.items()), *((id_, -less) for id_, less in sorted(lost.items()))):
        has = before.get(broker, 0)
        alone = f"gets {count(more)}" if more > 0 else f"loses {count(-more)}"
        sentences.append(f"broker {broker} " + (f"from {count(has)} to {count(has + more)}" if before else alone))
    rest = len(sentences) - _BROKERS_MAX
    sentences[_BROKERS_MAX:] = [f"and {counted(rest, 'other broker')}"] if rest > 0 else []
    return ", ".join(sentences) or "each broker has as many as before"


def shortened(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines, or the first of very many and how many more there are."""
    if len(lines) <= LINES_MAX:
        return tuple(lines)
    return (*lines[:LINES_MAX], f"… and {len(lines) - LINES_MAX} more")


def failure_texts(errors: Sequence[AdminError]) -> tuple[str, ...]:
    """Return what failed, each with where and what to do next."""
    return tuple(failure_text(error) for error in errors)


def failure_text(error: BaseException) -> str:
    """Return an error in words for users."""
    # The first picture does not need the planner.
    from plans.errors import PlanError

    if isinstance(error, PlanError):
        return planner_words(f"{error} — {error.hint}" if error.hint else str(error))
    if isinstance(error, OperationError) and error.hint:
        return f"{error} — {error.hint}"
    if not isinstance(error, EXPECTED):
        return f"{type(error).__name__}: {error}"
    if not isinstance(error, AdminError):
        return str(error) or type(error).__name__
    where = f"{spelled(error.where)}: " if error.where is not None else ""
    hint = f" — {spelled(error.hint)}" if error.hint is not None else ""
    return f"{where}{spelled(error.message)}{hint}"


def result_cell(word: str, *, is_good: bool, is_pending: bool = False) -> Cell:
    """Return the word for the outcome of a row."""
    tone = Tone.WARN if is_pending else Tone.GOOD if is_good else Tone.BAD
    return Cell(word.replace("_", " "), tone)
