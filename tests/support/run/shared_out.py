"""Shares files out to the processes of a run: the longest first, and what is dear to start to few. A pytest plugin.

All tests of a file run in the same process, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

SPARK = tuple(
    f"tests/spark/test_{name}.py"
    for name in (
        "lag_job", "source", "lag_of_a_query", "log_merge_in_stores", "sink", "log_merge", "replica_check",
        "hadoop_store", "session", "sent_files",
    )
)  # fmt: skip
"""Files that run in the same process, so that a run starts one session of Spark, whatever the number of processes."""

SPARK_ON_KAFKA = tuple(
    f"tests/interop/test_{name}.py"
    for name in ("hdfs", "spark_on_secured_kafka", "spark_source_on_kafka", "spark_lag_on_kafka", "on_kafka_4")
)
"""The same of those against Apache Kafka."""

ON_BROKERS = {
    "live_cluster": (
        (
            "tests/spark/test_clusters.py", "tests/spark/test_progress.py", "tests/cli/test_lag_spark.py",
            "tests/cli/test_spark_jobs.py", "tests/cli/test_without_pyspark.py",
        ),
        (
            "tests/cli/test_people.py", "tests/cli/test_perf_suite.py", "tests/cli/test_perf.py",
            "tests/cli/test_lag.py", "tests/cli/test_terminal.py", "tests/cli/test_exporter.py",
            "tests/cli/test_completion.py", "tests/cli/test_live_records.py", "tests/cli/test_live_topics.py",
            "tests/cli/test_live_metrics.py", "tests/cli/test_live_brokers_offsets_configs.py",
            "tests/cli/test_on_macos.py", "tests/cli/test_restart_order.py",
            "tests/admin/records/test_group_consume.py",
        ),
    ),
    "three_brokers": (
        (
            "tests/tui/test_operations.py", "tests/cli/test_live_reassignment.py", "tests/tui/test_plans_live.py",
            "tests/tui/test_clusters.py", "tests/cli/test_brokers_come_and_go.py", "tests/cli/test_tool_effects.py",
        ),
    ),
    "cluster": (
        (
            "tests/broker/server/test_conformance.py", "tests/broker/server/test_bad_frames.py",
            "tests/broker/server/test_bad_records.py", "tests/broker/server/test_many_connections.py",
            "tests/broker/server/test_odd_admin_requests.py", "tests/broker/server/test_read_your_commits.py",
        ),
        (
            "tests/clients/test_round_trips.py", "tests/clients/test_old_protocol.py",
            "tests/clients/test_admin_confluent.py", "tests/clients/test_admin_kafka_python.py",
            "tests/clients/test_auto_creation.py", "tests/clients/test_fetch_sessions.py",
            "tests/clients/test_idempotence.py", "tests/clients/test_internal_group_topics.py",
            "tests/clients/test_topic_settings.py",
        ),
    ),
    "group_cluster": (
        (
            "tests/clients/test_group_requests.py", "tests/clients/test_groups.py",
            "tests/clients/test_many_members.py",
        ),
    ),
}  # fmt: skip
"""By fixture, the files that share its brokers."""

TOGETHER = (SPARK, SPARK_ON_KAFKA, *(files for groups in ON_BROKERS.values() for files in groups))

LONGEST = (
    *SPARK,
    *ON_BROKERS["live_cluster"][0],
    *ON_BROKERS["live_cluster"][1],
    *ON_BROKERS["three_brokers"][0],
    "tests/cli/test_prometheus.py",
    "tests/cluster/test_transaction_histories.py",
    "tests/cli/test_outcomes.py",
    "tests/admin/watch/test_live_feed.py",
    "tests/cli/test_plan_apply_faults.py",
    "tests/cluster/test_failover.py",
    "tests/repo/test_mutants.py",
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
    "tests/plans/test_nearby_program.py",
    *SPARK_ON_KAFKA,
    "tests/interop/test_plans_on_kafka_4.py",
    "tests/interop/test_kafka_with_silent_zookeeper.py",
    "tests/interop/test_older_pyspark.py",
    "tests/interop/test_rights_and_users.py",
    "tests/interop/test_metrics_like_kafka.py",
    "tests/interop/test_connection_rates_on_kafka.py",
    "tests/interop/test_plans_on_kafka.py",
    "tests/interop/test_kerberos.py",
    "tests/interop/test_spark_cluster_on_secured_kafka.py",
    "tests/interop/test_java_transactions.py",
    "tests/interop/test_znode_rights_on_kafka.py",
    "tests/interop/test_quotas_on_kafka.py",
    "tests/interop/test_reassignment_on_kafka.py",
    "tests/interop/test_words_of_kafka_tools.py",
    "tests/interop/test_transactions_between_engines.py",
    "tests/interop/test_tokens_and_certificates.py",
    "tests/interop/test_secured_kafka.py",
    "tests/interop/test_secured_cluster.py",
    "tests/interop/test_secured_jmx.py",
    "tests/interop/test_metrics_of_kafka.py",
)
"""Files that take more than half a minute: begun late, one of them would end long after all others."""

_PLACES = {file: place for place, file in enumerate(LONGEST)}
_SHARED = {"spark", *ON_BROKERS}
_FIRST = {file: files[0] for files in TOGETHER for file in files}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first where several processes share them."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _PLACES.get(_file(item.nodeid), len(_PLACES)))


class Ends:
    """Ends what files share after the last of them: until the end of the run it would take CPU."""

    def __init__(self) -> None:
        self._ends: list[Callable[[], None]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        result = yield
        if fixturedef.scope == "session" and fixturedef.argname in _SHARED:
            self._ends.append(partial(fixturedef.finish, request))  # type: ignore[arg-type]
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
        yield
        if nextitem is not None and _together(nextitem.nodeid) != _together(item.nodeid):
            while self._ends:
                self._ends.pop()()


def pytest_configure(config: pytest.Config) -> None:
    """Where one process runs all files, others come between those that belong together."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Ends())


class _Sharing(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return _together(nodeid)

    def _reschedule(self, node: Any) -> None:
        """Give a process its next file when one test is left: it begins none before it knows the next one.

        pytest-xdist does so when two are left. A file would wait behind a long test while other processes are idle.
        """
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Sharing | None:
    return _Sharing(config, log) if config.getoption("dist") == "loadfile" else None


def _together(nodeid: str) -> str:
    """Return the first of the files that run in the same process one after the other."""
    file = _file(nodeid)
    return _FIRST.get(file, file)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
