"""``klamm brokers restart-order``: the order, the code, and the same answer whoever is asked."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from ended_sessions import kill_for_good
from golden import check_json
from guest_cluster import GuestCluster
from klamm_program import Ran, in_process
from patience import wait_for

from cli.framework.invocation import Invocation, TargetOptions
from cli.framework.talk import Talk
from cli.output.format import OutputFormat
from cli.views.brokers_restart_order import restart_order_report
from engine.admin.analysis.restart_order import RestartAdvice, RestartBoard, Verdict
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper


def advice(broker: int, verdict: Verdict, *reasons: str, registered_s: float | None = 5.0) -> RestartAdvice:
    return RestartAdvice(broker, verdict, reasons, 0, 0, 0, registered_s)


def test_the_next_one_comes_first_and_the_controller_after_the_others() -> None:
    brokers = (
        advice(0, Verdict.LAST, "it is the controller", registered_s=90.0),
        advice(1, Verdict.SAFE, registered_s=5.0),
        advice(2, Verdict.SAFE, registered_s=60.0),
        advice(3, Verdict.NO, "1 partition would have no leader", "broker 9 is down"),
    )
    report = restart_order_report(RestartBoard(brokers, next_broker=2))
    assert [(row["broker"], row["is_next"]) for row in report.data] == [(2, True), (1, False), (0, False), (3, False)]
    assert (report.exit_code, report.notes) == (0, ("restart broker 2 next",))
    assert report.table is not None
    assert report.table.rows[3][-1] == "1 partition would have no leader; broker 9 is down"


def test_nobody_to_restart_is_a_bad_answer(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = (advice(0, Verdict.WAIT, "broker 1 is down"), advice(1, Verdict.DOWN, registered_s=None))
    report = restart_order_report(RestartBoard(brokers, next_broker=None))
    start = "start broker 1 first; if it never comes back, move its replicas away: klamm plan decommission 1"
    assert (report.exit_code, report.notes) == (1, ("no broker can be restarted now", start))
    assert [row["registered_ms"] for row in report.data] == [5000, None]
    brokers = (advice(0, Verdict.UNKNOWN, "2 topics are hidden"), advice(1, Verdict.DOWN, registered_s=None))
    report = restart_order_report(RestartBoard(brokers, next_broker=None))
    assert (report.exit_code, report.notes) == (1, ("it is not known whether a broker can be restarted now", start))
    brokers = (advice(1, Verdict.DOWN), advice(2, Verdict.DOWN))
    report = restart_order_report(RestartBoard(brokers, next_broker=None))
    start = "start brokers 1, 2 first; if they never come back, move their replicas away: klamm plan decommission 1,2"
    assert report.notes == ("no broker can be restarted now", start)
    Invocation(OutputFormat.PLAIN, Talk(), target_options=TargetOptions(cluster="prod")).print(report)
    assert f"{start} --cluster prod\n" in capsys.readouterr().err, "not for another cluster"
    brokers = (advice(0, Verdict.DONE), advice(1, Verdict.DONE))
    report = restart_order_report(RestartBoard(brokers, next_broker=None))
    assert (report.exit_code, report.notes) == (0, ("all brokers have been restarted",))


def test_a_broker_whose_process_hangs_is_continued_rather_than_started(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its session has ended, but it keeps its port. Who does not know the address says both."""
    with GuestCluster(zookeeper, 2, directory=tmp_path) as cluster:
        first, second = cluster.bootstrap_servers.split(",")
        made = ("topics", "create", "t", "--partitions", "1", "--replication-factor", "2")
        assert in_process(*made, "--bootstrap-server", first, capture=capsys).code == 0
        kill_for_good(cluster, 1)

        def advised(*where: str) -> str:
            def line() -> str | None:
                said = in_process("brokers", "restart-order", *where, capture=capsys).err
                return next((line for line in said.splitlines() if "broker 1 first" in line), None)

            return wait_for(line, "broker 1 is down")

        assert advised("--bootstrap-server", f"{first},{second}").startswith("start broker 1 first; ")
        assert advised("--bootstrap-server", first).startswith("start or continue broker 1 first; ")
        assert advised("--zookeeper", cluster.zookeeper_connect).startswith("start or continue broker 1 first; ")
        host, _, port = second.partition(":")
        with socket.create_server((host, int(port))):
            hung = advised("--bootstrap-server", f"{first},{second}")
        assert hung.startswith(f"no answer at {second}, where connections are taken: continue or start broker 1 first;")


def test_who_waits_for_partitions_with_one_replica_is_told_that_no_waiting_helps() -> None:
    alone = replace(advice(0, Verdict.NO, "1 partition would have no leader (a-0 has no other replica)"), only_here=1)
    report = restart_order_report(RestartBoard((alone,), next_broker=None))
    first, second = report.notes
    assert first == "no broker can be restarted now"
    assert "no waiting helps" in second and "klamm plan factor" in second
    done = replace(alone, verdict=Verdict.DONE)
    assert restart_order_report(RestartBoard((done,), next_broker=None)).notes == ("all brokers have been restarted",)


@pytest.mark.parametrize("side", ["both", "wire", "zookeeper"])
def test_on_a_running_cluster(side: str, live_cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--bootstrap-server", live_cluster.bootstrap_servers, "--zookeeper", live_cluster.zookeeper_connect]
    where += [] if side == "both" else ["--via", side]

    def read() -> Ran | None:
        ran = in_process("brokers", "restart-order", *where, "-o", "json", capture=capsys)
        reasons = {reason for row in ran.json for reason in row["reasons"] if "not known" in reason}
        if side == "zookeeper":
            # Brokers may have a min ISR in their files, and were not asked.
            reasons = {reason for reason in reasons if not reason.startswith("min.insync.replicas of ")}
        return None if reasons else ran

    # A broker that answers after seconds leaves something unknown.
    ran = wait_for(read, "an order that knows all it needs")
    check_json("brokers restart-order", ran)
    order = ran.json
    listed = in_process("brokers", "list", *where[:2], "-o", "json", capture=capsys).json
    assert sorted(row["broker"] for row in order) == sorted(broker["id"] for broker in listed)
    # Other tests stop no broker of this cluster, but their partitions may be moving or short of replicas just now.
    assert (ran.code, sum(row["is_next"] for row in order)) in ((0, 1), (1, 0)), ran.err
    assert all(row["verdict"] in ("safe", "safe_better_last") for row in order if row["is_next"])
    later = in_process("brokers", "restart-order", "--since", "2099-01-01", *where, "-o", "json", capture=capsys)
    before = in_process("brokers", "restart-order", "--since", "2000-01-01", *where, "-o", "json", capture=capsys)
    if side == "wire":
        assert (later.code, later.error["message"]) == (2, "only ZooKeeper says when brokers registered")
    else:
        check_json("brokers restart-order", before)
        assert (before.code, {row["verdict"] for row in before.json}) == (0, {"done"}), before.err
        assert "done" not in {row["verdict"] for row in later.json}


def test_what_brokers_want_in_sync_counts_though_only_their_files_say_it(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ZooKeeper does not have it: by the znodes each broker was safe, and writes would have been refused."""
    with GuestCluster(zookeeper, 2, directory=tmp_path, config={"min.insync.replicas": "2"}) as cluster:
        wire = ("--bootstrap-server", cluster.bootstrap_servers)
        made = ("topics", "create", "t", "--partitions", "1", "--replication-factor", "2", *wire)
        assert in_process(*made, capture=capsys).code == 0
        for where in (wire, ("--zookeeper", cluster.zookeeper_connect)):
            ran = in_process("brokers", "restart-order", *where, "-o", "json", capture=capsys)
            assert ran.code == 1, (where, ran.out, ran.err)
            assert {(row["verdict"], row["would_refuse_writes"]) for row in ran.json} == {("no", 1)}, where
        kill_for_good(cluster, 1)
        for where in (wire, ("--zookeeper", cluster.zookeeper_connect)):

            def is_below(where: tuple[str, ...] = where) -> bool:
                health = in_process("cluster", "health", *where, "-o", "json", capture=capsys).json
                return "under_min_isr" in {reason["check"] for reason in health["reasons"]}

            wait_for(is_below, f"{where} tell of it")
