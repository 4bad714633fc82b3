"""Every task has a parent and a name, and the broker's parts take their time from the injected clock."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

READ_THE_MACHINES_CLOCK = {
    "engine/common/clock.py": "is the clock",
    "engine/broker/controller/channels.py": "metrics: how long a request took",
    "engine/broker/controller/loop.py": "how long the event loop was held, and an event took",
    "engine/broker/coordinator/transactions/verifier.py": "metrics: how long an answer took",
    "engine/broker/fetch/conversion.py": "metrics: how long a conversion took",
    "engine/broker/log/log_append.py": "metrics: how long a conversion took",
    "engine/broker/log/preparation.py": "metrics: how long a conversion took",
    "engine/broker/metrics/measures.py": "metrics: rates",
    "engine/broker/metrics/jolokia.py": "when an answer was given",
    "engine/broker/network/connection.py": "metrics: how long a request took",
    "engine/broker/replication/replica_manager.py": "metrics: how long a flush took",
    "engine/broker/server/log_cleaning.py": "metrics: how long ago a cleaner looked",
    "engine/broker/server/figures/process.py": "metrics: CPU, and pauses of the garbage collector",
    "engine/broker/server/reporters.py": "metrics: how long a reporter has run, and when it reports",
    "engine/broker/handlers/in_turns.py": "how long a request held the event loop",
    "engine/broker/network/request.py": "how long a request held the event loop",
    "engine/runtime/turns.py": "how long the event loop was held",
    "engine/runtime/descriptors.py": "how long a thread waits for a descriptor",
    "engine/runtime/discards.py": "how long the event loop was held",
    "engine/runtime/log_files.py": "the hour of an empty log file",
    "engine/runtime/loop_lag.py": "how late the event loop is",
    "engine/runtime/metrics_server.py": "the age of a page",
    "engine/runtime/purgatory.py": "timers of the event loop",
    "engine/broker/log/cleaner/cleaning.py": "a process of its own",
    "engine/kafka/client/sasl/oauthbearer.py": "when a token was made, which others read",
    "engine/kafka/client/sasl/settings.py": "whether a token is about to expire",
    "engine/kafka/zk/kazoo_handler.py": "how long one of kazoo's threads waits",
    "engine/kafka/zk/session.py": "how long ZooKeeper has not answered, which commands show",
}
"""Modules of the broker that read the machine's clock, and what they measure. No Kafka setting depends on it."""

READ_THE_HOUR = {
    "cli/commands/brokers.py": "a time such as 2h counts back from now",
    "cli/commands/consume.py": "a time such as 2h counts back from now",
    "cli/commands/groups/reset.py": "--by-duration counts back from now",
    "cli/commands/perf/shared.py": "processes begin at the same moment",
    "cli/commands/produce.py": "the time of a record",
    "cli/commands/spark/lag.py": "the age of samples",
    "engine/admin/cluster/rollback_file.py": "the name of a file",
    "engine/admin/groups/reset_plan.py": "a time such as 2h counts back from now",
    "engine/admin/lag/spark_queries.py": "the age of samples",
    "engine/admin/lag/history_sampling.py": "the time of a sample",
    "engine/admin/lag/measuring.py": "the time of a sample",
    "engine/admin/lag/sampling.py": "the time of a sample",
    "engine/admin/offsets/selection.py": "a time such as 2h counts back from now",
    "engine/admin/perf/producer.py": "the time of a record",
    "engine/admin/perf/results.py": "when a run began",
    "engine/admin/perf/suite_run.py": "processes begin at the same moment",
    "engine/admin/reassignment/journal.py": "the time of an entry",
    "engine/admin/reassignment/lock_holder.py": "since when a lock is held",
    "engine/admin/state_changes/merge.py": "the year, which a log line leaves out",
    "engine/local/security.py": "from when and until when a certificate is valid",
    "engine/spark/sink.py": "the time of a record",
    "tui/operations/groups.py": "--by-duration counts back from now",
    "tui/planning/desk.py": "the time of a plan's steps",
    "tui/screen/saving.py": "the name of a file",
}
"""Modules of the tools that read the wall clock, and for what. They measure waits with the monotonic clock."""

TOOLS = ("engine/admin", "engine/local", "engine/spark", "cli", "tui", "klamm")
"""Modules that are not part of a broker, and wait for other programs."""

PURE = ("plans", "engine/common", "engine/kafka/formats", "engine/kafka/protocol", "engine/kafka/config")
"""Pure modules: they get the time as an argument if they need it."""

WALL = {"time", "time_ns", "now", "utcnow", "today"}
STARTERS = {"create_task", "ensure_future"}
MONOTONIC = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"}
SEARCHED = re.compile(rf"\.(?:{'|'.join({'time', *WALL, *MONOTONIC, *STARTERS})})\b|^\s*from time import", re.MULTILINE)
"""Most files have none of these. Parsing them would take most of the time."""


Nodes = tuple[ast.AST, ...]


def sources(*packages: str) -> list[tuple[str, Nodes]]:
    paths = sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))
    assert len(paths) > 50
    return [(str(path.relative_to(ROOT)), nodes_of(path)) for path in paths]


@cache
def nodes_of(path: Path) -> Nodes:
    """Return the nodes of a file that the tests look at."""
    text = path.read_text()
    tree = ast.parse(text) if SEARCHED.search(text) else ast.Module([], [])
    return tuple(
        node for node in ast.walk(tree) if isinstance(node, ast.Expr | ast.Call | ast.Attribute | ast.ImportFrom)
    )


def readers_of_the_clock(files: list[tuple[str, Nodes]], names: set[str]) -> set[str]:
    """Return the modules that use one of these functions, called or passed on, or an event loop's time."""
    return {name for name, nodes in files for node in nodes if reads_the_clock(node, names)}


def reads_the_clock(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.ImportFrom):
        # A call by the bare name would escape this test.
        return node.module == "time"
    if not isinstance(node, ast.Attribute) or node.attr not in {*names, "time"}:
        return False
    owner = ast.unparse(node.value)
    if owner == "time" or owner.endswith(("datetime", "date")):
        return node.attr in names
    return node.attr == "time" and owner.endswith(("loop", "_loop()")) and "monotonic" in names


def starter(node: ast.AST) -> tuple[str, str]:
    """Return the receiver and name of a called method that starts a task, both empty for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STARTERS:
        return ast.unparse(node.func.value), node.func.attr
    return "", ""


def test_no_task_is_started_and_forgotten() -> None:
    """A group, a supervisor or the code that started it keeps the task and waits for it."""
    forgotten = [
        f"{name}:{node.lineno}"
        for name, nodes in sources("engine", "cli", "tui", "klamm")
        for node in nodes
        if isinstance(node, ast.Expr) and (call := starter(node.value))[1] and call[0] not in ("group", "workers")
    ]
    assert forgotten == []


def test_every_task_has_a_name() -> None:
    nameless = [
        f"{name}:{node.lineno}"
        for name, nodes in sources("engine", "cli", "tui", "klamm")
        for node in nodes
        if isinstance(node, ast.Call)
        and (
            (starter(node)[1] == "create_task" and "name" not in {keyword.arg for keyword in node.keywords})
            or starter(node)[1] == "ensure_future"
        )
    ]
    assert nameless == []


def test_the_broker_takes_its_time_from_the_clock_it_is_given() -> None:
    files = [(name, nodes) for name, nodes in sources("engine") if not name.startswith(TOOLS)]
    assert readers_of_the_clock(files, WALL | MONOTONIC) == set(READ_THE_MACHINES_CLOCK)


def test_the_tools_read_the_wall_clock_only_where_the_hour_counts() -> None:
    files = [(name, nodes) for name, nodes in sources("engine", "cli", "tui", "klamm") if name.startswith(TOOLS)]
    assert readers_of_the_clock(files, WALL) == set(READ_THE_HOUR)


def test_what_is_pure_reads_no_clock() -> None:
    files = [(name, nodes) for name, nodes in sources("engine", "plans") if name.startswith(PURE)]
    assert readers_of_the_clock(files, WALL | MONOTONIC) == {"engine/common/clock.py"}
