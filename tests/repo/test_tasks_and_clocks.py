"""Every task has a parent and a name, and the broker's parts take their time from the clock that they are given."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

READ_THE_MACHINES_CLOCK = {
    "engine/common/clock.py": "is the clock",
    "engine/coordinator/group/ownership.py": "how long the event loop was held",
    "engine/replication/state_changes.py": "how long the event loop was held",
    "engine/runtime/descriptors.py": "how long a thread waits for a descriptor",
    "engine/runtime/log_files.py": "the hour of an empty log file",
    "engine/runtime/loop_lag.py": "how late the event loop is",
    "engine/runtime/purgatory.py": "timers of the event loop",
    "engine/storage/cleaner/cleaning.py": "a process of its own",
    "engine/storage/cleaner/throttle.py": "a process of its own",
    "engine/zk/kazoo_handler.py": "how long one of kazoo's threads waits",
    "engine/zk/session.py": "how long ZooKeeper has not answered, which commands show",
}
"""Modules of the broker that read the machine's clock, and what they measure. No setting of Kafka's depends on it."""

TOOLS = {"admin", "local", "pipeline"}
"""Packages of the engine that are no part of a broker: they wait for other programs."""


def sources(*packages: str) -> list[tuple[str, ast.Module]]:
    paths = sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))
    assert len(paths) > 50
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in paths]


def of_the_broker() -> list[tuple[str, ast.Module]]:
    return [(name, tree) for name, tree in sources("engine") if name.split("/")[1] not in TOOLS]


def method(node: ast.AST) -> tuple[str, str]:
    """Return receiver and name of a method that is called, both empty for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return ast.unparse(node.func.value), node.func.attr
    return "", ""


def test_no_task_is_started_and_forgotten() -> None:
    """Somebody keeps it and waits for it: a group, a supervisor, or whoever started it."""
    forgotten = [
        f"{name}:{node.lineno}"
        for name, tree in sources("engine", "cli", "tui", "klamm")
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and (found := method(node.value))[1] in ("create_task", "ensure_future")
        and found[0] not in ("group", "workers")
    ]
    assert forgotten == []


def test_every_task_has_a_name() -> None:
    nameless = [
        f"{name}:{node.lineno}"
        for name, tree in sources("engine", "cli", "tui", "klamm")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            (method(node)[1] == "create_task" and "name" not in {keyword.arg for keyword in node.keywords})
            or method(node)[1] == "ensure_future"
        )
    ]
    assert nameless == []


def test_the_broker_takes_its_time_from_the_clock_it_is_given() -> None:
    readers = {
        name
        for name, tree in of_the_broker()
        for node in ast.walk(tree)
        if method(node) in {("time", one) for one in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter")}
        or (method(node)[1] == "time" and method(node)[0].endswith("loop"))
        or method(node)[1] in ("now", "utcnow", "today")
    }
    assert readers == set(READ_THE_MACHINES_CLOCK)
