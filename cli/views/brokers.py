"""Brokers as rows, and the cluster as a few lines above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.output.report import Column, Fields, Kind, Report, Section, Table, Tone
from cli.views.kafka.brokers import cluster_id_text
from engine.admin.brokers.description import ClusterDescription
from engine.admin.cluster.members import BrokerDescription
from engine.common.model import NO_CONTROLLER

if TYPE_CHECKING:
    from engine.admin.cluster.quorum import Quorum, QuorumMember


_COLUMNS = (
    Column("id", Kind.NUMBER),
    Column("host"),
    Column("port", Kind.NUMBER),
    Column("rack"),
    Column("controller", Kind.FLAG, tone={True: Tone.STRONG, False: Tone.QUIET}),
    Column("endpoints", Kind.LIST, is_dispensable=True),
    Column("broker_epoch", Kind.NUMBER, title="Epoch", is_dispensable=True),
)


def brokers_report(brokers: Sequence[BrokerDescription]) -> Report:
    """One row per live broker."""
    return Report(brokers, Table.of(_COLUMNS, brokers), notes=() if brokers else ("no broker is alive",))


def cluster_report(cluster: ClusterDescription) -> Report:
    """The cluster's facts, then its brokers; in plain and csv one row."""
    controller = "none" if cluster.controller_id == NO_CONTROLLER else str(cluster.controller_id)
    pairs = [
        ("cluster id", cluster.cluster_id),
        ("controller", controller),
        ("controller epoch", cluster.controller_epoch),
        ("topics", cluster.topic_count),
        ("zookeeper", cluster.zookeeper),
        ("source", cluster.told_by),
    ]
    if cluster.finalized_features:
        pairs.append(
            (
                "features",
                ", ".join(f"{feature.name}={feature.level}" for feature in cluster.finalized_features),
            )
        )
    columns = (
        Column("cluster_id"),
        Column("controller_id", Kind.NUMBER),
        Column("controller_epoch", Kind.NUMBER),
        Column("broker_count", Kind.NUMBER),
        Column("topic_count", Kind.NUMBER),
    )
    row = (
        cluster.cluster_id,
        cluster.controller_id,
        cluster.controller_epoch,
        len(cluster.brokers),
        cluster.topic_count,
    )
    sections: tuple[Section, ...] = (Section(body=Fields(pairs)), Section(body=Table.of(_COLUMNS, cluster.brokers)))
    if cluster.quorum is not None:
        sections = (*sections, Section("quorum", body=_quorum_table(cluster.quorum)))
    return Report(cluster, Table(columns, [row]), sections, as_kafka=lambda: cluster_id_text(cluster.cluster_id))


def _quorum_table(quorum: Quorum) -> Table:
    columns = (Column("id", Kind.NUMBER), Column("role"), Column("log_end_offset", Kind.NUMBER, title="End"),
               Column("lag", Kind.NUMBER))  # fmt: skip
    return Table(columns, [(member.id, _role(member), member.log_end_offset, member.lag) for member in quorum.members])


def _role(member: QuorumMember) -> str:
    return "leader" if member.is_leader else "voter" if member.is_voter else "observer"
