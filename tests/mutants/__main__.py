"""``python -m tests.mutants [MODULE…]``: changes one thing at a time in code that protects data, and runs its tests.

A mutant that no test notices is a rule that no test protects. ``survivors.toml`` explains those whose change no test
could see. Any other is printed, and the exit code is 1. Mutants run in a copy of the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.mutants.changes import ROOT, Mutant, mutants_of
from tests.mutants.warm import TASK

HERE = Path(__file__).parent

_TIED = (sys.executable, str(ROOT / "engine/local/launch.py"), "tied")
"""Runs a command that ends with this process, however this one ends."""

TESTED_BY = {
    "engine/broker/log/producer_sequences.py": [
        "broker/log/test_producer_rules.py",
        "broker/log/test_producers.py",
        "broker/log/test_verified_transactions.py",
    ],
    "engine/broker/log/producer_state.py": [
        "broker/log/test_producer_rules.py",
        "broker/log/test_producers.py",
        "broker/log/test_log_model.py",
        "broker/log/test_transaction_lives.py",
        "broker/log/test_verified_transactions.py",
        "broker/log/test_long_cuts.py",
    ],
    "engine/broker/log/leader_epoch_cache.py": ["broker/log/test_leader_epochs.py"],
    "engine/broker/log/log.py": [
        "broker/log/test_append_results.py",
        "broker/log/test_append_limits.py",
        "broker/log/test_log_files.py",
        "broker/log/test_append.py",
        "broker/log/test_producers.py",
        "broker/log/test_reads.py",
        "broker/log/test_retention.py",
        "broker/log/test_recovery.py",
        "broker/log/test_failing_disks.py",
        "broker/log/test_old_formats.py",
        "broker/log/test_power_failures.py",
        "broker/log/test_flush_state.py",
        "broker/log/test_cleaner_choice.py",
        "broker/log/test_log_moves.py",
        "broker/log/test_log_model.py",
        "broker/log/test_verified_transactions.py",
        "broker/log/test_long_cuts.py",
    ],
    "engine/broker/log/segment_recovery.py": [
        "broker/log/test_recovered_indexes.py",
        "broker/log/test_recovery.py",
        "broker/log/test_producers.py",
        "broker/log/test_overflowed_segments.py",
        "broker/log/test_power_failures.py",
    ],
    "engine/broker/log/segment_swap.py": [
        "broker/log/test_recovered_indexes.py",
        "broker/log/test_recovery.py",
        "broker/log/test_overflowed_segments.py",
        "broker/log/test_compaction.py",
    ],
    "engine/broker/log/log_loader.py": [
        "broker/log/test_opened_folders.py",
        "broker/log/test_recovered_indexes.py",
        "broker/log/test_recovery.py",
        "broker/log/test_reused_names.py",
        "broker/log/test_overflowed_segments.py",
        "broker/log/test_recorded_folders.py",
        "broker/log/test_power_failures.py",
    ],
    "engine/broker/log/log_files.py": [
        "broker/log/test_log_files.py",
        "broker/log/test_reads.py",
        "broker/log/test_append.py",
        "broker/log/test_retention.py",
        "broker/log/test_recovery.py",
        "broker/log/test_log_moves.py",
        "broker/log/test_few_descriptors.py",
        "broker/log/test_compaction.py",
    ],
    "engine/broker/log/partition_folder.py": [
        "broker/log/test_opened_folders.py",
        "broker/log/test_recovery.py",
        "broker/log/test_log_moves.py",
        "broker/log/test_failing_disks.py",
        "broker/log/test_power_failures.py",
        "broker/log/test_log_manager.py",
    ],
    "engine/broker/log/producer_snapshots.py": [
        "broker/log/test_producer_snapshots.py",
        "broker/log/test_flush_state.py",
        "broker/log/test_producers.py",
        "broker/log/test_recovery.py",
    ],
    "engine/broker/log/log_append.py": [
        "broker/log/test_append_limits.py",
        "broker/log/test_append.py",
        "broker/log/test_producers.py",
        "broker/log/test_old_formats.py",
        "broker/handlers/test_long_preparation.py",
    ],
    "engine/broker/log/flush_state.py": [
        "broker/log/test_flush_state.py",
        "broker/log/test_due_work.py",
        "broker/log/test_recovery.py",
        "broker/log/test_producers.py",
        "broker/log/test_few_descriptors.py",
        "broker/log/test_failing_disks.py",
        "broker/log/test_log_moves.py",
        "broker/log/test_power_failures.py",
        "broker/log/test_log_model.py",
    ],
    "engine/broker/log/retention.py": ["broker/log/test_retention.py"],
    "engine/broker/log/placed_batches.py": [
        "broker/log/test_append.py",
        "broker/log/test_producers.py",
        "broker/log/test_producer_rules.py",
    ],
    "engine/broker/log/active_segment.py": [
        "broker/log/test_append.py",
        "broker/log/test_reads.py",
        "broker/log/test_log_model.py",
    ],
    "engine/broker/log/checkpoint_file.py": ["broker/log/test_reused_names.py", "broker/log/test_power_failures.py"],
    "engine/broker/log/log_checkpoints.py": ["broker/log/test_reused_names.py", "broker/log/test_power_failures.py"],
    "engine/broker/log/log_manager.py": [
        "broker/log/test_log_manager.py",
        "broker/log/test_due_work.py",
        "broker/log/test_log_moves.py",
        "broker/log/test_reused_names.py",
        "broker/log/test_few_descriptors.py",
        "broker/log/test_power_failures.py",
        "broker/server/test_log_upkeep.py",
    ],
    "engine/broker/log/log_dir_loader.py": [
        "broker/log/test_log_manager.py",
        "broker/log/test_reused_names.py",
        "broker/log/test_few_descriptors.py",
        "broker/log/test_power_failures.py",
        "broker/log/test_recorded_folders.py",
        "broker/log/test_log_moves.py",
    ],
    "engine/broker/log/log_dirs.py": [
        "broker/log/test_log_dirs.py",
        "broker/log/test_log_manager.py",
        "broker/log/test_reused_names.py",
        "broker/log/test_few_descriptors.py",
        "broker/log/test_power_failures.py",
        "broker/log/test_log_moves.py",
    ],
    "engine/broker/log/disk_jobs.py": [
        "broker/log/test_disk_jobs.py",
        "broker/log/test_log_files.py",
        "broker/log/test_due_work.py",
        "broker/log/test_flush_state.py",
        "broker/log/test_reused_names.py",
        "broker/log/test_failing_disks.py",
        "broker/log/test_few_descriptors.py",
        "broker/log/test_power_failures.py",
        "broker/log/test_replaced_logs.py",
        "broker/log/test_log_manager.py",
        "broker/server/test_log_upkeep.py",
        "broker/log/test_log_moves.py",
    ],
    "engine/broker/log/log_moves.py": ["broker/log/test_log_manager.py", "broker/log/test_log_moves.py"],
    "engine/broker/log/segment_list.py": [
        "broker/log/test_append.py",
        "broker/log/test_reads.py",
        "broker/log/test_retention.py",
        "broker/log/test_recovery.py",
        "broker/log/test_log_model.py",
        "broker/log/test_compaction.py",
    ],
    "engine/broker/log/small_files.py": [
        "broker/log/test_log_manager.py",
        "broker/log/test_reused_names.py",
        "broker/log/test_power_failures.py",
        "broker/log/test_failing_disks.py",
        "broker/log/test_few_descriptors.py",
        "broker/log/test_recovery.py",
    ],
    "engine/broker/log/replaced_logs.py": ["broker/log/test_replaced_logs.py", "broker/log/test_log_moves.py"],
    "engine/broker/replication/partition.py": [
        "broker/replication/test_partition.py",
        "broker/replication/test_roles.py",
        "broker/replication/test_settled_partitions.py",
        "broker/replication/test_isr_changes.py",
        "broker/replication/test_log_dir_moves.py",
        "broker/replication/test_replication.py",
    ],
    "engine/broker/replication/leader_and_isr_change.py": [
        "broker/replication/test_state_changes.py",
        "broker/replication/test_log_dir_moves.py",
        "broker/replication/test_replication.py",
    ],
    "engine/broker/replication/truncation.py": ["broker/replication/test_truncation.py"],
    "engine/broker/replication/isr.py": ["broker/replication/test_isr.py"],
    "engine/broker/replication/roles.py": ["broker/replication/test_roles.py", "broker/replication/test_gaps.py"],
    "engine/broker/replication/fetch_cuts.py": [
        "broker/replication/test_fetch_cuts.py",
        "broker/replication/test_gaps.py",
    ],
    "engine/broker/log/cleaner/cleaning.py": [
        "broker/log/test_cleaned_segments.py",
        "broker/log/test_cleaning_rounds.py",
        "broker/log/test_compaction.py",
        "broker/log/test_compaction_transactions.py",
    ],
    "engine/broker/controller/leader_selectors.py": [
        "broker/controller/test_leader_selectors.py",
        "broker/controller/test_partition_states.py",
        "broker/controller/test_elections_on_demand.py",
        "broker/controller/test_brokers.py",
        "broker/controller/test_reassignment.py",
    ],
    "engine/broker/controller/isr_approval.py": [
        "broker/controller/test_isr_changes.py",
        "broker/controller/test_reassignment.py",
    ],
    "engine/broker/controller/topic_deletion.py": ["broker/controller/test_topics.py"],
    "engine/broker/controller/replica_state_machine.py": [
        "broker/controller/test_replica_states.py",
        "broker/controller/test_topics.py",
        "broker/controller/test_brokers.py",
    ],
    "engine/broker/coordinator/groups/offsets.py": [
        "broker/coordinator/groups/test_offsets.py",
        "broker/coordinator/groups/test_commit_gathering.py",
        "broker/coordinator/groups/test_coordinator.py",
        "broker/handlers/test_plain_commits.py",
    ],
    "engine/broker/coordinator/groups/commit_form.py": ["broker/handlers/test_plain_commits.py"],
    "engine/broker/handlers/plain_commits.py": ["broker/handlers/test_plain_commits.py"],
    "engine/broker/coordinator/groups/commit_gathering.py": [
        "broker/coordinator/groups/test_commit_gathering.py",
        "broker/coordinator/groups/test_very_many_offsets.py",
        "broker/handlers/test_plain_commits.py",
    ],
    "engine/broker/coordinator/groups/state_machine.py": [
        "broker/coordinator/groups/test_state_machine.py",
        "broker/coordinator/groups/test_group_timers.py",
        "broker/coordinator/groups/test_recorded_walks.py",
    ],
    "engine/broker/coordinator/groups/rebalance.py": [
        "broker/coordinator/groups/test_state_machine.py",
        "broker/coordinator/groups/test_group_timers.py",
        "broker/coordinator/groups/test_recorded_walks.py",
    ],
    "engine/broker/coordinator/groups/loading.py": [
        "broker/coordinator/groups/test_records.py",
        "broker/coordinator/groups/test_coordinator.py",
    ],
    "engine/broker/coordinator/transactions/state_machine.py": [
        "broker/coordinator/transactions/test_state_machine.py",
        "broker/coordinator/transactions/test_transaction_coordinator.py",
    ],
    "engine/broker/coordinator/transactions/transaction.py": [
        "broker/coordinator/transactions/test_state_machine.py",
        "broker/coordinator/transactions/test_transaction_coordinator.py",
    ],
    "engine/broker/coordinator/transactions/coordinator.py": [
        "broker/coordinator/transactions/test_transaction_coordinator.py",
        "broker/coordinator/transactions/test_bad_input.py",
    ],
    "engine/broker/coordinator/transactions/marker_sender.py": [
        "broker/coordinator/transactions/test_transaction_coordinator.py",
        "broker/coordinator/transactions/test_bad_input.py",
    ],
    "engine/broker/coordinator/transactions/marker_writer.py": [
        "broker/coordinator/transactions/test_bad_input.py",
        "broker/coordinator/transactions/test_transaction_coordinator.py",
    ],
    "engine/broker/coordinator/transactions/records.py": [
        "broker/coordinator/transactions/test_transaction_coordinator.py",
        "broker/coordinator/transactions/test_bad_input.py",
    ],
    "engine/broker/coordinator/transactions/verifier.py": ["broker/coordinator/transactions/test_verifier.py"],
    "engine/broker/coordinator/ownership.py": ["broker/coordinator/test_ownership.py"],
    "engine/broker/coordinator/groups/offset_requests.py": [
        "broker/coordinator/groups/test_coordinator.py",
        "broker/coordinator/groups/test_commit_gathering.py",
        "broker/coordinator/groups/test_very_many_offsets.py",
        "broker/coordinator/groups/test_forgotten_groups.py",
    ],
    "engine/broker/controller/partition_state_machine.py": [
        "broker/controller/test_partition_states.py",
        "broker/controller/test_reads_and_failures.py",
        "broker/controller/test_elections_on_demand.py",
        "broker/controller/test_brokers.py",
        "broker/controller/test_reassignment.py",
        "broker/controller/test_topics.py",
    ],
    "engine/broker/controller/leadership.py": [
        "broker/controller/test_reads_and_failures.py",
        "broker/controller/test_partition_states.py",
        "broker/controller/test_isr_changes.py",
        "broker/controller/test_brokers.py",
        "broker/controller/test_reassignment.py",
        "broker/controller/test_replica_states.py",
    ],
    "engine/broker/controller/reassignment.py": [
        "broker/controller/test_reassignment.py",
        "broker/controller/test_reads_and_failures.py",
        "broker/controller/test_reassignment_in_batches.py",
        "broker/controller/test_crash_points.py",
    ],
    "engine/broker/controller/broker_changes.py": [
        "broker/controller/test_brokers.py",
        "broker/controller/test_topics.py",
    ],
    "engine/broker/controller/requested_elections.py": [
        "broker/controller/test_elections_on_demand.py",
        "broker/controller/test_reads_and_failures.py",
        "broker/controller/test_brokers.py",
    ],
    "engine/broker/log/cleaner/batch_cleaner.py": ["broker/log/test_batch_cleaner.py"],
    "engine/broker/log/cleaner/record_scan.py": ["broker/log/test_record_scan.py"],
    "engine/broker/log/cleaner/record_runs.py": ["broker/log/test_record_scan.py"],
    "engine/broker/log/cleaner/choice.py": ["broker/log/test_cleaner_choice.py"],
    "engine/broker/log/cleaner/transactions.py": [
        "broker/log/test_cleaned_transactions.py",
        "broker/log/test_compaction_transactions.py",
    ],
    "engine/broker/replication/leader_endpoint.py": ["broker/replication/test_leader_endpoint.py"],
    "engine/broker/replication/fetch_table.py": [
        "broker/replication/test_fetch_table.py",
        "broker/replication/test_gaps.py",
    ],
    "engine/broker/replication/fetcher.py": [
        "broker/replication/test_fetcher.py",
        "broker/replication/test_bad_answers.py",
        "broker/replication/test_replication.py",
    ],
    "engine/broker/replication/follower.py": [
        "broker/replication/test_follower.py",
        "broker/replication/test_fetch_cuts.py",
    ],
    "engine/broker/replication/isr_proposals.py": ["broker/replication/test_isr_proposals.py"],
    "engine/broker/replication/alter_partition.py": ["broker/replication/test_isr_updaters.py"],
    "engine/broker/replication/isr_updater.py": ["broker/replication/test_isr_updaters.py"],
    "engine/broker/server/own_listeners.py": ["broker/server/test_own_listeners.py"],
    "engine/broker/replication/offset_lookup.py": ["broker/handlers/test_offset_requests.py"],
}
"""Each module with the tests, below tests/, that must notice when it is wrong; the quickest first."""


class _TestsFailError(Exception):
    """The tests fail without any mutant, so they tell nothing of one."""


class Bench:
    """A copy of the checkout, in which the mutants of one module at a time are tried."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self.process: subprocess.Popen[bytes] | None = None
        """The tests that run now, or ran last."""
        for name in _files():
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy / name)

    def survivors(self, module: str, mutants: Sequence[Mutant], *, is_quick: bool) -> list[Mutant]:
        """Return the mutants that no test notices. A quick check does not rerun all tests for each of them."""
        results = self._in_forks(module, mutants)
        if len(results) <= len(mutants) or not results[0]["passed"]:
            raise _TestsFailError
        survey, verdicts = results[0], results[1:]
        by_number = {verdict["mutant"]: verdict for verdict in verdicts}
        missed = [mutant for mutant in mutants if not by_number[mutant.number]["is_noticed"]]
        limit_s = 20 + 4 * survey["seconds"]

        def survives(mutant: Mutant) -> bool:
            is_enough = is_quick and by_number[mutant.number]["is_tried"]
            return is_enough or not self._is_noticed(mutant, limit_s)

        return [mutant for mutant in missed if survives(mutant)]

    def _in_forks(self, module: str, mutants: Sequence[Mutant]) -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory(dir=self._copy.parent) as folder:
            task, results = Path(folder) / "task", Path(folder) / "results"
            task.write_text(
                json.dumps(
                    {"module": module, "mutants": [mutant.number for mutant in mutants], "results": str(results)}
                )
            )
            self._run(module, None, "-p", "tests.mutants.warm", **{TASK: str(task)})
            return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []

    def _is_noticed(self, mutant: Mutant, limit_s: float) -> bool:
        """Return whether a test fails, or takes far too long, in a process with this mutant."""
        path = self._copy / mutant.module
        original = path.read_text()
        try:
            path.write_text(mutant.source)
            return not self._run(mutant.module, limit_s)
        finally:
            path.write_text(original)

    def _run(self, module: str, limit_s: float | None, *options: str, **variables: str) -> bool:
        process = subprocess.Popen(
            [*_TIED, str(os.getpid()),
             sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options, *_tests_of(module)],
            cwd=self._copy,
            env=os.environ
            | {"PYTHONPATH": str(self._copy), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(self._copy.parent)}
            | variables,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.process = process
        try:
            return process.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.end()

    def end(self) -> None:
        """Kill the tests if they still run."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _remove_when_ended(folder: Path, benches: Sequence[Bench]) -> None:
    """Have a signal that ends this process end the tests and remove the folder too."""
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def on_signal(number: int, _frame: object) -> None:
        # ``timeout`` sends two, and the second would wait for what the first holds.
        for each in ends:
            signal.signal(each, signal.SIG_IGN)
        while folder.exists():  # the workers' threads may still write a file or start tests
            for bench in benches:
                bench.end()
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    for number in ends:
        signal.signal(number, on_signal)


def _files() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.rstrip("\0").split("\0")


def _tests_of(module: str) -> list[str]:
    return [f"tests/{name}" for name in TESTED_BY[module]]


def main(arguments: list[str]) -> int:
    """Run the mutants; return 1 if one survives that nobody has explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="files of TESTED_BY; all by default")
    parser.add_argument("--sample", type=int, metavar="N", help="this many mutants of each module, chosen by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="modules that are tried at the same time")
    parser.add_argument("--quick", action="store_true", help="do not run all tests again for each mutant that survives")
    wanted = parser.parse_args(arguments)
    if unknown := sorted(set(wanted.modules) - set(TESTED_BY)):
        parser.error(f"no tests are named for {', '.join(unknown)}; there are {', '.join(TESTED_BY)}")
    known = tomllib.loads((HERE / "survivors.toml").read_text())["survivor"]
    explained = {
        (survivor["module"], survivor["function"], survivor["before"], survivor["after"]) for survivor in known
    }

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(wanted.workers) as pool:
        benches: list[Bench] = []
        _remove_when_ended(Path(folder), benches)
        benches += [Bench(Path(folder) / str(number)) for number in range(wanted.workers)]
        free: SimpleQueue[Bench] = SimpleQueue()
        for bench in benches:
            free.put(bench)

        def try_module(module: str) -> tuple[int, int, bool]:
            mutants = list(mutants_of(module))
            if wanted.sample is not None:
                mutants = random.Random(wanted.seed).sample(mutants, min(wanted.sample, len(mutants)))
            mutants = [mutant for mutant in mutants if mutant.key not in explained]
            bench = free.get()
            try:
                missed = bench.survivors(module, mutants, is_quick=wanted.quick)
            except _TestsFailError:
                print(
                    f"error: the tests of {module} fail without any mutant: {' '.join(_tests_of(module))}", flush=True
                )
                return 0, 0, True
            finally:
                free.put(bench)
            lines = [f"{module}: {len(mutants)} mutants, {len(missed)} survive", *(f"  {mutant}" for mutant in missed)]
            print("\n".join(lines), flush=True)
            return len(mutants), len(missed), False

        counts = list(pool.map(try_module, wanted.modules or TESTED_BY))
    run_count, survivors, untried = (sum(column) for column in zip(*counts, strict=True))
    print(f"{run_count} mutants, {survivors} survive; {len(explained)} are explained in survivors.toml")
    return 1 if survivors or untried else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
