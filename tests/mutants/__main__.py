"""``python -m tests.mutants [MODULE…]``: changes one thing at a time in what protects data, and runs its tests.

A mutant that no test notices is a rule that no test protects. Those that change nothing a test could see are explained
in ``survivors.toml``; any other is printed, and the exit code is 1. The checkout is not touched: mutants run in a copy.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

TESTED_BY = {
    "engine/storage/producer_entry.py": ["storage/test_producer_rules.py", "storage/test_producers.py"],
    "engine/storage/producer_state.py": [
        "storage/test_producer_rules.py",
        "storage/test_producers.py",
        "storage/test_log_model.py",
    ],
    "engine/storage/leader_epoch_cache.py": ["storage/test_leader_epochs.py"],
    "engine/storage/log.py": [
        "storage/test_append_results.py",
        "storage/test_append_limits.py",
        "storage/test_log_files.py",
        "storage/test_append.py",
        "storage/test_producers.py",
        "storage/test_reads.py",
        "storage/test_retention.py",
        "storage/test_recovery.py",
        "storage/test_failing_disks.py",
        "storage/test_old_formats.py",
        "storage/test_power_failures.py",
        "storage/test_flush_state.py",
        "storage/test_cleaner_choice.py",
        "storage/test_log_moves.py",
        "storage/test_log_model.py",
    ],
    "engine/storage/segment_recovery.py": [
        "storage/test_recovered_indexes.py",
        "storage/test_recovery.py",
        "storage/test_producers.py",
        "storage/test_overflowed_segments.py",
        "storage/test_power_failures.py",
    ],
    "engine/storage/segment_swap.py": [
        "storage/test_recovered_indexes.py",
        "storage/test_recovery.py",
        "storage/test_overflowed_segments.py",
        "storage/test_compaction.py",
    ],
    "engine/storage/log_loader.py": [
        "storage/test_opened_folders.py",
        "storage/test_recovered_indexes.py",
        "storage/test_recovery.py",
        "storage/test_reused_names.py",
        "storage/test_overflowed_segments.py",
        "storage/test_recorded_folders.py",
        "storage/test_power_failures.py",
    ],
    "engine/storage/log_files.py": [
        "storage/test_log_files.py",
        "storage/test_append.py",
        "storage/test_retention.py",
        "storage/test_recovery.py",
        "storage/test_log_moves.py",
        "storage/test_few_descriptors.py",
        "storage/test_compaction.py",
    ],
    "engine/storage/partition_folder.py": [
        "storage/test_opened_folders.py",
        "storage/test_recovery.py",
        "storage/test_log_moves.py",
        "storage/test_failing_disks.py",
        "storage/test_power_failures.py",
        "storage/test_log_manager.py",
    ],
    "engine/storage/producer_snapshots.py": [
        "storage/test_producer_snapshots.py",
        "storage/test_flush_state.py",
        "storage/test_producers.py",
        "storage/test_recovery.py",
    ],
    "engine/storage/log_append.py": [
        "storage/test_append_limits.py",
        "storage/test_append.py",
        "storage/test_producers.py",
        "storage/test_old_formats.py",
        "handlers/test_long_preparation.py",
    ],
    "engine/storage/flush_state.py": [
        "storage/test_flush_state.py",
        "storage/test_recovery.py",
        "storage/test_producers.py",
        "storage/test_few_descriptors.py",
        "storage/test_failing_disks.py",
        "storage/test_log_moves.py",
        "storage/test_power_failures.py",
        "storage/test_log_model.py",
    ],
    "engine/storage/retention.py": ["storage/test_retention.py"],
    "engine/storage/placed_batches.py": [
        "storage/test_append.py",
        "storage/test_producers.py",
        "storage/test_producer_rules.py",
    ],
    "engine/storage/active_segment.py": [
        "storage/test_append.py",
        "storage/test_reads.py",
        "storage/test_log_model.py",
    ],
    "engine/storage/checkpoint_file.py": ["storage/test_reused_names.py", "storage/test_power_failures.py"],
    "engine/storage/log_checkpoints.py": ["storage/test_reused_names.py", "storage/test_power_failures.py"],
    "engine/storage/replaced_logs.py": ["storage/test_log_moves.py", "replication/test_log_dir_moves.py"],
    "engine/replication/partition.py": [
        "replication/test_partition.py",
        "replication/test_roles.py",
        "replication/test_settled_partitions.py",
        "replication/test_isr_changes.py",
        "replication/test_log_dir_moves.py",
        "replication/test_replication.py",
    ],
    "engine/replication/truncation.py": ["replication/test_truncation.py"],
    "engine/replication/isr.py": ["replication/test_isr.py"],
    "engine/replication/roles.py": ["replication/test_roles.py"],
    "engine/replication/fetch_cuts.py": ["replication/test_fetch_cuts.py"],
    "engine/storage/cleaner/cleaning.py": [
        "storage/test_cleaning_rounds.py",
        "storage/test_compaction.py",
        "storage/test_compaction_transactions.py",
    ],
    "engine/controller/election.py": [
        "controller/test_election.py",
        "controller/test_partition_states.py",
        "controller/test_elections_on_demand.py",
        "controller/test_brokers.py",
        "controller/test_reassignment.py",
    ],
    "engine/controller/isr_approval.py": ["controller/test_isr_changes.py", "controller/test_reassignment.py"],
    "engine/controller/topic_deletion.py": ["controller/test_topics.py"],
    "engine/controller/replica_state_machine.py": [
        "controller/test_replica_states.py",
        "controller/test_topics.py",
        "controller/test_brokers.py",
    ],
    "engine/coordinator/group/offsets.py": [
        "coordinator/test_offsets.py",
        "coordinator/test_commit_gathering.py",
        "coordinator/test_coordinator.py",
    ],
    "engine/coordinator/group/commit_gathering.py": ["coordinator/test_commit_gathering.py"],
    "engine/coordinator/group/machine.py": ["coordinator/test_machine.py", "coordinator/test_recorded_walks.py"],
}
"""Each module, and the tests that must notice when it goes wrong, below tests/; the quickest first."""

_OPPOSITE: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


_LOGS = re.compile(
    r"(controller_log\(.*?\)|self\._log|changes|self\._changes)\.(trace|debug|info|warning|error)\(|self\._(log|trace)_move\("
)
"""Calls that write to a log of the controller, beside those by ``logger``."""


class Mutant(NamedTuple):
    """One change: in which function, what it was and what it is; and the whole module with it."""

    module: str
    function: str
    line: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.module, self.function, self.before, self.after

    def __str__(self) -> str:
        return f"{self.module}:{self.line} in {self.function}: {self.before}  →  {self.after}"


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module: comparisons, conditions, sums and numbers turned, and calls left out."""
    tree = ast.parse((ROOT / module).read_text())
    seen: set[ast.stmt] = set()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for statement in [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node not in seen]:
            seen.add(statement)
            if not _only_tells(statement):
                for before, after in _changes(statement):
                    yield Mutant(module, function.name, statement.lineno, before, after, ast.unparse(tree))


def _only_tells(statement: ast.stmt) -> bool:
    """Whether a statement documents, logs or raises: its words protect nothing."""
    if isinstance(statement, ast.Raise | ast.FunctionDef | ast.AsyncFunctionDef):
        return True
    text = ast.unparse(statement)
    if isinstance(statement, ast.If):
        return (
            "_log.is_debug_enabled" in text.partition("\n")[0] or "changes.is_trace_enabled" in text.partition("\n")[0]
        )
    return isinstance(statement, ast.Expr) and (
        text.startswith(("logger.", "'", '"')) or ".state_change_log." in text or _LOGS.match(text) is not None
    )


def _changes(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """Make each change of one statement in turn in the tree, yield its text before and after, and take it back."""
    before = _head(statement)
    for node in _own_nodes(statement):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITE:
            kept = node.ops[0]
            node.ops[0] = _OPPOSITE[type(kept)]()
            yield before, _head(statement)
            node.ops[0] = kept
        elif isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and type(node.op) in _OPPOSITE:
            operator = node.op
            node.op = _OPPOSITE[type(operator)]()
            yield before, _head(statement)
            node.op = operator
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
            value = node.value
            node.value = not value if isinstance(value, bool) else value + 1
            yield before, _head(statement)
            node.value = value
    if isinstance(statement, ast.If | ast.While) and not isinstance(statement.test, ast.Compare):
        test = statement.test
        statement.test = ast.UnaryOp(ast.Not(), test)
        yield before, _head(statement)
        statement.test = test
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        statement.value = ast.Constant(...)
        yield before, "left out"
        statement.value = call


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, but not of the statements in its body: each of those has its own turn."""
    yield statement
    waiting = list(ast.iter_child_nodes(statement))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield node
            waiting += ast.iter_child_nodes(node)


def _head(statement: ast.stmt) -> str:
    return ast.unparse(statement).partition("\n")[0]


class Bench:
    """Copies of the checkout, one for each worker, and how long a mutant's tests may take."""

    def __init__(self, folder: Path, workers: int) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True,
            check=True, text=True,
        )  # fmt: skip
        self._free: list[Path] = []
        for number in range(workers):
            copy = folder / str(number)
            for name in filter(None, listed.stdout.split("\0")):
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / name, copy / name)
            self._free.append(copy)

    def is_noticed(self, mutant: Mutant, limit_s: float) -> bool:
        """Return whether a test fails, or takes far longer than it should, with this mutant."""
        copy = self._free.pop()
        path = copy / mutant.module
        original = path.read_text()
        try:
            path.write_text(mutant.source)
            return not self.passes(copy, mutant.module, limit_s)
        finally:
            path.write_text(original)
            self._free.append(copy)

    def seconds_of(self, module: str) -> float:
        """Return how long the tests of a module take as it is; they must pass."""
        begun = time.monotonic()
        if not self.passes(self._free[0], module, 600):
            raise SystemExit(f"error: the tests of {module} fail without any mutant: {' '.join(_tests_of(module))}")
        return time.monotonic() - begun

    @staticmethod
    def passes(copy: Path, module: str, limit_s: float) -> bool:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *_tests_of(module)],
            cwd=copy, env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _tests_of(module: str) -> list[str]:
    return [f"tests/{name}" for name in TESTED_BY[module]]


def main(arguments: list[str]) -> int:
    """Run the mutants; return 1 if one survives that nobody has explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="files of TESTED_BY; all by default")
    parser.add_argument("--sample", type=int, metavar="N", help="this many mutants of each module, chosen by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    wanted = parser.parse_args(arguments)
    if unknown := sorted(set(wanted.modules) - set(TESTED_BY)):
        parser.error(f"no tests are named for {', '.join(unknown)}; there are {', '.join(TESTED_BY)}")
    told = tomllib.loads((HERE / "survivors.toml").read_text())["survivor"]
    explained = {(one["module"], one["function"], one["before"], one["after"]) for one in told}
    survivors = run_count = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder), wanted.workers)
        for module in wanted.modules or TESTED_BY:
            mutants = list(mutants_of(module))
            if wanted.sample is not None:
                mutants = random.Random(wanted.seed).sample(mutants, min(wanted.sample, len(mutants)))
            mutants = [one for one in mutants if one.key not in explained]
            limit_s = 20 + 4 * bench.seconds_of(module)
            with ThreadPoolExecutor(wanted.workers) as pool:
                noticed = list(pool.map(lambda one, limit_s=limit_s: bench.is_noticed(one, limit_s), mutants))
            missed = [one for one, is_noticed in zip(mutants, noticed, strict=True) if not is_noticed]
            print(f"{module}: {len(mutants)} mutants, {len(missed)} survive", flush=True)
            for one in missed:
                print(f"  {one}", flush=True)
            survivors, run_count = survivors + len(missed), run_count + len(mutants)
    print(f"{run_count} mutants, {survivors} survive; {len(explained)} are explained in survivors.toml")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
