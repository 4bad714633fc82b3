"""``--workers N``: shares files out to N processes, which fork off once the tests are collected. A pytest plugin.

The longest files go first, and what is dear to start goes to few processes. All tests of a file run in the same
process, one after the other. With pytest-xdist each process would import and collect all tests by itself, for ten
seconds of CPU each; what this one has loaded is loaded for all.
"""

from __future__ import annotations

import atexit
import os
import random
import threading
from collections import deque
from contextlib import suppress
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

SPARK = tuple(
    f"tests/spark/test_{name}.py"
    for name in (
        "lag_job", "source", "lag_of_a_query", "log_merge_in_stores", "sink", "log_merge", "replica_check",
        "hadoop_store", "session", "sent_files",
    )
)  # fmt: skip
"""Files that run in the same process, so that a run starts one session of Spark, whatever the number of processes."""

SPARK_ON_KAFKA = tuple(
    tuple(f"tests/interop/test_{name}.py" for name in names)
    for names in (("hdfs", "spark_source_on_kafka", "on_kafka_4"), ("spark_on_secured_kafka", "spark_lag_on_kafka"))
)
"""The same of those against Apache Kafka: in one process, they would outlast all other files."""

LONGEST = (
    *SPARK,
    "tests/spark/test_clusters.py",
    "tests/cli/test_prometheus.py",
    "tests/cluster/test_transaction_histories.py",
    "tests/cli/test_outcomes.py",
    "tests/admin/watch/test_live_feed.py",
    "tests/cli/test_plan_apply_faults.py",
    "tests/cli/test_live_reassignment.py",
    "tests/cluster/test_failover.py",
    "tests/repo/test_mutants.py",
    "tests/tui/test_operations.py",
    "tests/cluster/test_faults.py",
    "tests/plans/test_work.py",
    "tests/tui/test_top.py",
    "tests/tui/test_memory.py",
    "tests/cluster/test_leaderless.py",
    "tests/cli/test_plan_apply.py",
    "tests/broker/log/test_log_moves.py",
    "tests/broker/replication/test_failing_calls.py",
    "tests/broker/server/test_bad_start.py",
    "tests/demo/test_demo.py",
    "tests/broker/server/test_compaction.py",
    "tests/broker/replication/test_power_failures.py",
    "tests/cli/test_plan_dead_broker.py",
    "tests/cli/test_half_dead.py",
    "tests/plans/test_scenarios.py",
    "tests/plans/test_nearby.py",
    *SPARK_ON_KAFKA[0],
    *SPARK_ON_KAFKA[1],
    "tests/interop/test_kafka_with_silent_zookeeper.py",
    "tests/interop/test_metrics_like_kafka.py",
    "tests/interop/test_connection_rates_on_kafka.py",
    "tests/interop/test_plans_on_kafka.py",
    "tests/interop/test_plans_on_kafka_4.py",
    "tests/interop/test_spark_cluster_on_secured_kafka.py",
    "tests/interop/test_kerberos.py",
    "tests/interop/test_quotas_on_kafka.py",
    "tests/interop/test_reassignment_on_kafka.py",
    "tests/interop/test_words_of_kafka_tools.py",
    "tests/interop/test_rights_and_users.py",
    "tests/interop/test_java_transactions.py",
    "tests/interop/test_transactions_between_engines.py",
    "tests/interop/test_secured_kafka.py",
    "tests/interop/test_secured_cluster.py",
    "tests/interop/test_secured_jmx.py",
    "tests/interop/test_metrics_of_kafka.py",
    "tests/interop/test_older_pyspark.py",
)
"""Files that take more than half a minute: begun late, one of them would end long after all others."""

_PLACES = {file: place for place, file in enumerate(LONGEST)}
_FIRST = {file: files[0] for files in (SPARK, *SPARK_ON_KAFKA) for file in files}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run tests in so many processes; 0: in this one")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first where several processes share them."""
    if config.getoption("workers"):
        items.sort(key=lambda item: _PLACES.get(_file(item.nodeid), len(_PLACES)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("workers")
    options = session.config.option
    if not count or options.collectonly or (session.testsfailed and not options.continue_on_collection_errors):
        return None
    _Sharing(session).run(count)
    return True


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _together(nodeid: str) -> str:
    """Return a test's file, or the first of those that run in the same process."""
    file = _file(nodeid)
    return _FIRST.get(file, file)


class _Worker:
    """A process that runs tests, as seen from the one that shares them out."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.left: deque[int] = deque()
        """The tests that it has not finished. It runs the first."""


class _Sharing:
    """Shares out the tests of a run, by their numbers, and reports what comes back."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        files = groupby(range(len(session.items)), key=lambda number: _together(session.items[number].nodeid))
        self._files = deque([*tests] for _, tests in files)
        self._workers: dict[Connection, _Worker] = {}
        self._started = 0

    def run(self, count: int) -> None:
        """Run all tests, or as many as the options let fail.

        Raises:
            Session.Failed, Session.Interrupted: as a run without workers.
        """
        try:
            for _ in range(min(count, len(self._files))):
                self._start()
            while self._workers:
                for pipe in wait([*self._workers]):
                    assert isinstance(pipe, Connection)
                    message = _received(pipe)
                    if message is None:
                        self._ended(pipe)
                    else:
                        self._heard(pipe, *message)
        finally:
            for pipe in self._workers:
                pipe.close()
            for worker in self._workers.values():
                os.waitpid(worker.pid, 0)

    def _start(self) -> None:
        here, there = Pipe()
        self._started += 1
        folder = self._session.config._tmp_path_factory.getbasetemp() / f"worker-{self._started}"  # type: ignore[attr-defined]
        pid = os.fork()
        if not pid:
            for pipe in (here, *self._workers):
                pipe.close()
            _work(self._session, there, folder)
        there.close()
        self._workers[here] = _Worker(pid)

    def _heard(self, pipe: Connection, about: str, data: Any) -> None:
        worker, session = self._workers[pipe], self._session
        if about == "next file":
            tests = self._files.popleft() if self._files else []
            worker.left.extend(tests)
            with suppress(BrokenPipeError):
                pipe.send(tests)
        elif about == "done":
            worker.left.popleft()
        else:
            report = session.config.hook.pytest_report_from_serializable(config=session.config, data=data)
            self._report(report)

    def _report(self, report: pytest.TestReport) -> None:
        session = self._session
        session.config.hook.pytest_runtest_logreport(report=report)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _ended(self, pipe: Connection) -> None:
        """Take leave of a process. If it died, its test has failed, and another one runs the rest."""
        worker = self._workers.pop(pipe)
        pipe.close()
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if not worker.left:
            return
        item = self._session.items[worker.left.popleft()]
        if worker.left:
            self._files.appendleft([*worker.left])
        if self._files:
            self._start()
        told = f"the process that ran it ended with {code}"
        self._report(pytest.TestReport(item.nodeid, item.location, {}, "failed", told, "call"))


def _received(pipe: Connection) -> tuple[str, Any] | None:
    try:
        return pipe.recv()  # type: ignore[no-any-return]
    except (EOFError, ConnectionResetError):
        return None


def _work(session: pytest.Session, pipe: Connection, folder: Path) -> NoReturn:
    """Run the tests that come through the pipe, and end this process, which has just forked off."""
    code = 1
    try:
        # What was registered before is the other process's to do.
        atexit._clear()
        random.seed()
        folder.mkdir()
        config = session.config
        config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        config.pluginmanager.unregister(name="terminalreporter")
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        config.pluginmanager.register(_Reporting(config, pipe))
        _run_tests(session, pipe)
        code = 0
    except BaseException:
        with suppress(BaseException):
            session._setupstate.teardown_exact(None)
    finally:
        with suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        os._exit(code)


def _run_tests(session: pytest.Session, pipe: Connection) -> None:
    hook, item = session.config.hook, None
    while numbers := _next_file(pipe):
        items = [session.items[number] for number in numbers]
        for item, nextitem in zip(items, [*items[1:], _OtherFile(session)], strict=True):
            hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            pipe.send(("done", None))
    if item is not None:
        # The fixtures of the session end with the last test, and the report of it tells if they cannot.
        call = pytest.CallInfo.from_call(lambda: session._setupstate.teardown_exact(None), "teardown")
        hook.pytest_runtest_logreport(report=hook.pytest_runtest_makereport(item=item, call=call))


def _next_file(pipe: Connection) -> list[int]:
    """Return the numbers of the tests of the next file; none if there is none."""
    pipe.send(("next file", None))
    return pipe.recv()  # type: ignore[no-any-return]


class _OtherFile:
    """Stands for a test of another file, whichever it will be: pytest ends the fixtures that it cannot use.

    So a process takes a file when it can begin it. Otherwise files would wait behind a long test.
    """

    path = None

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    def listchain(self) -> list[pytest.Session]:
        return [self._session]


class _Reporting:
    """Sends reports to the process that shares out."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config, self._pipe = config, pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._pipe.send(("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report)))
