"""A frame as metrics: true figures, none that are too old, and never more series than allowed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fake_cluster import FakeCluster, small_cluster

from engine.admin.analysis.exporter_metrics import FrameMetrics, MetricsScope
from engine.admin.cluster.rights import Right
from engine.admin.cluster.target import Side
from engine.admin.topics.selection import select_topics
from engine.admin.watch.frame import Frame, LinkState, Stage
from engine.common.acl import AclOperation, ResourceType
from engine.common.metric import prometheus_lines
from engine.common.model import TopicPartition

GUIDE = Path(__file__).parents[3] / "docs/guides/watch-with-prometheus.md"
ALL = MetricsScope(has_partitions=True)


def told(frame: Frame, scope: MetricsScope = ALL) -> dict[str, float]:
    """Return the value of each series."""
    lines = "".join(prometheus_lines(FrameMetrics(scope).of_frame(frame))).splitlines()
    return {series: float(value) for line in lines if line[0] != "#" for series, _, value in [line.rpartition(" ")]}


def names(series: dict[str, float]) -> set[str]:
    return {line.partition("{")[0] for line in series}


def test_a_cluster_without_trouble() -> None:
    cluster = small_cluster()
    cluster.advance(5_000)
    series = told(cluster.frame())
    assert series["klamm_cluster_up"] == 1
    assert series["klamm_cluster_health"] == 0
    assert series["kafka_brokers"] == 3
    assert series['kafka_topic_partitions{topic="orders"}'] == series['klamm_broker_replicas{broker="1"}'] - 22 == 12
    assert series["klamm_cluster_partitions"] == 34
    assert series["klamm_cluster_leaderless"] == series["klamm_cluster_under_replicated"] == 0
    ends = [end.end for name, end in cluster.frame().offsets.items() if name.topic == "orders"]
    assert series['klamm_topic_end_offsets_total{topic="orders"}'] == sum(ends) > 0
    size = sum(log.size_bytes for name, logs in cluster.frame().logs.items() if name.topic == "orders" for log in logs)
    assert series['klamm_topic_size_bytes{topic="orders"}'] == size > 0
    assert series['kafka_topic_partition_in_sync_replica{topic="audit",partition="0"}'] == 3
    assert not any(name.startswith("klamm_exporter_series_left_out") for name in series)


def test_a_dead_broker_and_one_that_is_silent() -> None:
    cluster = small_cluster()
    cluster.kill(2)
    cluster.silence(3)
    series = told(cluster.frame())
    up = {line: value for line, value in series.items() if line.startswith("klamm_broker_up")}
    assert [value for _, value in sorted(up.items())] == [1, 0, 0]
    assert series["klamm_cluster_under_replicated"] == 34
    assert series["klamm_cluster_health"] == 2
    assert series['klamm_cluster_health_findings{check="missing_brokers",severity="critical"}'] == 1


def test_what_the_exporter_may_not_see_is_told() -> None:
    """Without it, a page of zeros would look like a healthy cluster."""
    frame = small_cluster().frame()
    assert not any(name.startswith("klamm_exporter_rights_missing{") for name in told(frame))
    hidden = [Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name) for name in ("orders", "audit")]
    denied = (Right(AclOperation.DESCRIBE, ResourceType.CLUSTER), *hidden)
    series = told(replace(frame, denied=denied))
    assert {name: value for name, value in series.items() if "rights_missing" in name} == {
        'klamm_exporter_rights_missing{operation="describe",resource="cluster"}': 1,
        'klamm_exporter_rights_missing{operation="describe-configs",resource="topic"}': 2,
    }


@pytest.mark.parametrize(
    ("stage", "gone"),
    [
        (Stage.LOG_DIRS, {"klamm_log_dir_size_bytes", "klamm_topic_size_bytes", "klamm_broker_size_bytes"}),
        (Stage.OFFSETS, {"klamm_topic_end_offsets_total", "kafka_topic_partition_current_offset"}),
        (Stage.GROUPS, {"kafka_consumergroup_group_sum_lag", "kafka_consumergroup_members"}),
        (Stage.METADATA, {"klamm_cluster_leaderless", "kafka_topic_partitions", "klamm_broker_up"}),
    ],
)
def test_what_is_too_old_is_not_told(stage: Stage, gone: set[str]) -> None:
    cluster = small_cluster()
    cluster.add_group("billing", "orders", reads=50, lag=1_000)
    cluster.frame()
    cluster.fail_stage(stage, "no answer")
    cluster.advance(59_000)
    young = told(cluster.frame())
    assert gone <= names(young)
    cluster.advance(2_000)
    series = told(cluster.frame())
    assert not gone & names(series)
    assert "klamm_cluster_up" in series
    assert series[f'klamm_exporter_reading_age_seconds{{reading="{stage}"}}'] > 60
    assert series[f'klamm_exporter_reading_failed{{reading="{stage}"}}'] == 1


def test_without_an_answer_there_are_no_figures() -> None:
    cluster = small_cluster()
    for side in Side:
        cluster.set_link(side, LinkState.LOST, "connection refused")
    series = told(cluster.frame())
    assert series["klamm_cluster_up"] == 0
    assert {name for name in names(series) if not name.startswith("klamm_exporter_reading_")} == {"klamm_cluster_up"}


def test_a_sum_of_ends_waits_for_all_of_them() -> None:
    frame = small_cluster().frame()
    lacks_one = {name: end for name, end in frame.offsets.items() if name != TopicPartition("orders", 7)}
    series = told(replace(frame, offsets=lacks_one))
    assert 'klamm_topic_end_offsets_total{topic="orders"}' not in series
    assert 'klamm_topic_end_offsets_total{topic="audit"}' in series


def test_what_new_replicas_still_lack() -> None:
    cluster = FakeCluster(4, {"orders": 3}, partition_bytes=1_000, copy_rate=100, rate=0)
    cluster.reassign(TopicPartition("orders", 0), (4, 2, 3))
    cluster.advance(3_000)
    series = told(cluster.frame())
    assert series["klamm_cluster_moving"] == series['klamm_topic_moving{topic="orders"}'] == 1
    assert 0 < series['klamm_reassignment_left_bytes{topic="orders"}'] < 1_000


def test_groups_and_topics_are_chosen_and_totals_stay_whole() -> None:
    cluster = small_cluster()
    cluster.add_group("billing", "orders", reads=50, lag=1_000)
    cluster.add_group("audit-2", "audit", reads=50, lag=10)
    cluster.advance(5_000)
    scope = MetricsScope(select_topics(["aud.*"]), (re.compile("bill.*"),))
    series = told(cluster.frame(), scope)
    topics = {text for line in series for text in re.findall(r'^k[a-z_]+topic_[a-z_]+\{topic="([^"]*)', line)}
    assert topics == {"audit"}
    groups = {text for line in series for text in re.findall(r'group="([^"]*)', line)}
    assert groups == {"billing"}
    assert series["klamm_cluster_partitions"] == 34
    assert not any("partition=" in line for line in series)


def test_series_beyond_the_limit_are_counted() -> None:
    series = told(small_cluster().frame(), MetricsScope(series_max=4))
    assert len([line for line in series if line.startswith("kafka_topic_partitions")]) == 4
    assert series['klamm_exporter_series_left_out{metric="kafka_topic_partitions"}'] == 2
    assert 'klamm_exporter_series_left_out{metric="kafka_brokers"}' not in series


def test_the_guide_names_each_metric() -> None:
    cluster = small_cluster()
    cluster.add_query("etl", "orders", reads=50)
    cluster.reassign(TopicPartition("orders", 0), (3, 2, 1))
    cluster.advance(5_000)
    names = {metric.name for metric in FrameMetrics(ALL).of_frame(cluster.frame())}
    named = set(re.findall(r"^\| `((?:klamm|kafka)_[a-z_]+)", GUIDE.read_text("utf-8"), re.MULTILINE))
    assert names - named == set()
    assert named - names == set()
