"""``klamm brokers restart-order``: the order, the code, and the same answer whoever is asked."""

from __future__ import annotations

import pytest
from json_schemas import check_json
from klamm_program import in_process

from cli.views.restart_order import restart_order_report
from engine.admin.analysis.restart_board import RestartAdvice, RestartBoard, Verdict
from engine.local.cluster import LocalCluster


def advice(broker: int, verdict: Verdict, *reasons: str, registered_s: float | None = 5.0) -> RestartAdvice:
    return RestartAdvice(broker, verdict, reasons, 0, 0, 0, registered_s)


def test_the_next_one_comes_first_and_the_controller_after_the_others() -> None:
    brokers = (
        advice(0, Verdict.LAST, "it is the controller", registered_s=90.0),
        advice(1, Verdict.SAFE, registered_s=5.0),
        advice(2, Verdict.SAFE, registered_s=60.0),
        advice(3, Verdict.NO, "1 partition would have no leader", "broker 9 is down"),
    )
    report = restart_order_report(RestartBoard(brokers, next_broker=2, down=()))
    assert [(row["broker"], row["is_next"]) for row in report.data] == [(2, True), (1, False), (0, False), (3, False)]
    assert (report.exit_code, report.notes) == (0, ("restart broker 2 next",))
    assert report.table is not None
    assert report.table.rows[3][-1] == "1 partition would have no leader; broker 9 is down"


def test_nobody_to_restart_is_a_bad_answer() -> None:
    brokers = (advice(0, Verdict.WAIT, "broker 1 is down"), advice(1, Verdict.DOWN, registered_s=None))
    report = restart_order_report(RestartBoard(brokers, next_broker=None, down=(1,)))
    assert (report.exit_code, report.notes) == (1, ("no broker can be restarted now",))
    assert [row["registered_ms"] for row in report.data] == [5000, None]


@pytest.mark.parametrize("side", ["both", "wire", "zookeeper"])
def test_on_a_running_cluster(side: str, live_cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--bootstrap-server", live_cluster.bootstrap_servers, "--zookeeper", live_cluster.zookeeper_connect]
    where += [] if side == "both" else ["--via", side]
    ran = in_process("brokers", "restart-order", *where, "-o", "json", capture=capsys)
    check_json("brokers restart-order", ran)
    told = ran.json
    listed = in_process("brokers", "list", *where[:2], "-o", "json", capture=capsys).json
    assert sorted(one["broker"] for one in told) == sorted(one["id"] for one in listed)
    # Other tests stop no broker of this cluster, but their partitions may be moving or short of replicas just now.
    assert (ran.code, sum(one["is_next"] for one in told)) in ((0, 1), (1, 0)), ran.err
    assert all(one["verdict"] in ("safe", "safe, better last") for one in told if one["is_next"])
    assert not any("not known" in reason for one in told for reason in one["reasons"])
