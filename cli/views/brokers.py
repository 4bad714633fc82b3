"""Brokers and their log dirs as rows, each broker in detail, and a few lines about the cluster above them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from cli.exit_codes import ExitCode
from cli.output.report import Column, Fields, Kind, Report, Section, Table, Tone
from cli.views.kafka import brokers as kafka
from cli.views.kafka.brokers import api_versions_text, cluster_id_text
from engine.admin.brokers.description import BrokerDetails, BrokerPartitions, ClusterDescription, has_trouble
from engine.admin.cluster.members import BrokerDescription
from engine.admin.log_dirs.describing import NOT_ALIVE, DirReplica, DirTotals, LogDir, log_dir_metrics, totals_by_dir
from engine.common.model import NO_CONTROLLER
from engine.common.quantities import size_text

if TYPE_CHECKING:
    from engine.admin.cluster.quorum import Quorum, QuorumMember


_EXAMPLES_MAX = 5


_ROW = (
    Column("id", Kind.NUMBER),
    Column("alive", Kind.FLAG),
    Column("controller", Kind.FLAG),
    Column("rack"),
    Column("listeners", Kind.LIST),
    Column("release"),
    Column("held", Kind.NUMBER),
    Column("led", Kind.NUMBER),
    Column("preferred", Kind.NUMBER),
    Column("preferred_led", Kind.NUMBER),
    Column("out_of_sync", Kind.NUMBER),
    Column("leaderless", Kind.NUMBER),
    Column("size_bytes", Kind.BYTES),
    Column("error"),
)
_DIRS = (
    Column("log_dir"),
    Column("replica_count", Kind.NUMBER, title="Replicas"),
    Column("size_bytes", Kind.BYTES, title="Size"),
    Column("total_bytes", Kind.BYTES, title="Volume"),
    Column("usable_bytes", Kind.BYTES, title="Free"),
    Column("error", tone=Tone.BAD, falls_below=True),
)
_APIS = (
    Column("key", Kind.NUMBER),
    Column("name"),
    Column("min_version", Kind.NUMBER),
    Column("max_version", Kind.NUMBER),
)


def broker_details_report(brokers: Sequence[BrokerDetails], *, with_apis: bool) -> Report:
    """Everything; the exit code is 1 if something is wrong with a broker itself."""
    sections = [section for broker in brokers for section in _sections(broker, with_apis=with_apis)]
    return Report(
        [_data(broker, with_apis=with_apis) for broker in brokers],
        Table(_ROW, [_row(broker) for broker in brokers]),
        sections,
        notes=() if brokers else ("no broker is alive",),
        exit_code=ExitCode.BAD_ANSWER if any(map(has_trouble, brokers)) else ExitCode.DONE,
        as_kafka=(lambda: api_versions_text(brokers)) if with_apis else None,
    )


def _data(broker: BrokerDetails, *, with_apis: bool) -> dict[str, object]:
    share = broker.partitions
    apis: dict[str, object] = {"apis": broker.report.apis} if with_apis else {}
    return {
        "id": broker.id,
        "alive": broker.alive,
        "controller": broker.controller,
        "rack": broker.rack,
        "listeners": broker.listeners,
        "broker_epoch": broker.broker_epoch,
        "registered_at": _registered_at(broker),
        "jmx_port": broker.jmx_port,
        "release": broker.report.release,
        "inter_broker_protocol": broker.report.inter_broker_protocol,
        "partitions": {
            "held": share.held,
            "led": share.led,
            "preferred": share.preferred,
            "preferred_led": share.preferred_led,
            "imbalance_percent": share.imbalance_percent,
            "adding": share.adding,
            "removing": share.removing,
            "out_of_sync": share.out_of_sync,
            "leaderless": share.leaderless,
        },
        "configs": broker.configs,
        "log_dirs": broker.report.log_dirs,
        "error": _error(broker),
        **apis,
    }


def _row(broker: BrokerDetails) -> tuple[object, ...]:
    share, dirs = broker.partitions, broker.report.log_dirs
    return (
        broker.id,
        broker.alive,
        broker.controller,
        broker.rack,
        [str(listener) for listener in broker.listeners],
        broker.report.release,
        share.held,
        share.led,
        share.preferred,
        share.preferred_led,
        len(share.out_of_sync),
        len(share.leaderless),
        None if dirs is None else sum(each.size_bytes for each in dirs),
        _error(broker),
    )


def _sections(broker: BrokerDetails, *, with_apis: bool) -> list[Section]:
    title = f"broker {broker.id}" + (", controller" if broker.controller else "")
    if not broker.alive:
        title += ": MISSING"
    elif broker.report.trouble is not None:
        title += f": {broker.report.trouble}"
    sections = [
        Section(title, Fields([(name, value) for name, value in _facts(broker) if value not in (None, "", ())]))
    ]
    if broker.report.log_dirs:
        sections.append(Section(body=Table.of(_DIRS, broker.report.log_dirs).unless_empty("error")))
    if with_apis and broker.report.apis:
        sections.append(Section(body=Table.of(_APIS, broker.report.apis)))
    return sections


def _facts(broker: BrokerDetails) -> list[tuple[str, object]]:
    share, report = broker.partitions, broker.report
    protocol = f", protocol {report.inter_broker_protocol}" if report.inter_broker_protocol else ""
    moving = ", ".join(
        f"{count} {verb}" for count, verb in ((share.adding, "coming"), (share.removing, "going")) if count
    )
    dirs = report.log_dirs
    return [
        ("listeners", [str(listener) for listener in broker.listeners] or None),
        ("rack", broker.rack),
        ("release", f"as Kafka {report.release}{protocol}" if report.release else None),
        ("registered", _registered_at(broker)),
        ("epoch", broker.broker_epoch),
        ("JMX port", broker.jmx_port),
        ("partitions", f"{share.held} held, {share.led} led" + (f" ({moving})" if moving else "")),
        ("preferred", _preferred(share)),
        ("out of sync", _examples(share.out_of_sync)),
        ("leaderless", _examples(share.leaderless)),
        ("on disk", None if not dirs else size_text(sum(each.size_bytes for each in dirs))),
        ("configs", [f"{key}={value}" for key, value in broker.configs.items()] or None),
    ]


def _preferred(share: BrokerPartitions) -> str | None:
    if not share.preferred:
        return None
    return f"leads {share.preferred_led} of {share.preferred}, imbalance {share.imbalance_percent}%"


def _examples(names: Sequence[str]) -> str | None:
    if not names:
        return None
    more = f", and {len(names) - _EXAMPLES_MAX} more" if len(names) > _EXAMPLES_MAX else ""
    return f"{len(names)}: {', '.join(names[:_EXAMPLES_MAX])}{more}"


def _registered_at(broker: BrokerDetails) -> datetime | None:
    return None if broker.registered_at_ms is None else datetime.fromtimestamp(broker.registered_at_ms / 1000, UTC)


def _error(broker: BrokerDetails) -> str | None:
    if not broker.alive:
        return NOT_ALIVE
    failed = [f"{each.log_dir}: {each.error}" for each in broker.report.log_dirs or () if each.error]
    return broker.report.trouble or "; ".join(failed) or None


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
            ("features", ", ".join(f"{feature.name}={feature.level}" for feature in cluster.finalized_features))
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


_FULL_PERCENT = 90

SHOWN_MAX = 20
"""Replicas in a table for which no topics were named. A cluster has thousands; a full disk is about the largest."""


def _lag_tone(value: object) -> Tone | None:
    return Tone.WARNING if isinstance(value, int) and value > 0 else None


def _full_tone(value: object) -> Tone | None:
    return Tone.WARNING if isinstance(value, int) and value >= _FULL_PERCENT else None


_REPLICA = (
    Column("broker", Kind.NUMBER),
    Column("log_dir"),
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("size_bytes", Kind.BYTES, title="Size"),
    Column("offset_lag", Kind.NUMBER, title="Lag", tone=_lag_tone),
    Column("is_future", Kind.FLAG, title="Future"),
    Column("error", tone=Tone.BAD, falls_below=True),
)
_TOTALS = (
    Column("broker", Kind.NUMBER),
    Column("log_dir"),
    Column("topic"),
    Column("replica_count", Kind.NUMBER, title="Replicas"),
    Column("future_count", Kind.NUMBER, title="Future"),
    Column("size_bytes", Kind.BYTES, title="Size"),
    Column("largest_bytes", Kind.BYTES, title="Largest"),
    Column("offset_lag_max", Kind.NUMBER, title="Max lag", tone=_lag_tone),
    Column("total_bytes", Kind.BYTES, title="Volume"),
    Column("usable_bytes", Kind.BYTES, title="Free"),
    Column("error", tone=Tone.BAD, falls_below=True),
)
_SUBJECTS = {"dir": ("broker", "log_dir"), "broker": ("broker",), "topic": ("topic",)}


def log_dirs_report(
    dirs: Sequence[LogDir], *, order: str, names_topics: bool = True, is_for_people: bool = True
) -> Report:
    """A row per replica; a log dir without replicas, or with an error, has a row of its own.

    If no topics are named, a person sees the largest replicas (or the furthest behind) and a note; machines get all.
    """
    rows: list[tuple[object, ...]] = [
        (log_dir.broker, log_dir.log_dir, r.topic, r.partition, r.size_bytes, r.offset_lag, r.is_future, None)
        for log_dir, r in _ordered([(log_dir, replica) for log_dir in dirs for replica in log_dir.replicas], order)
    ]
    rows += [(d.broker, d.log_dir, None, None, None, None, None, d.error) for d in dirs if not d.replicas]
    replicas = [row[:-1] for row in rows if row[2] is not None]
    notes = _notes(dirs)
    if not names_topics and len(replicas) > SHOWN_MAX and is_for_people:
        column, superlative = (5, "furthest behind") if order == "lag" else (4, "largest")
        notes += (f"the {SHOWN_MAX} {superlative} of {len(replicas)} replicas; all: --topic-list '.*', or -o plain",)
        replicas = heapq.nlargest(SHOWN_MAX, replicas, key=lambda row: cast("int", row[column] or 0))
    dirs = [replace(d, replicas=tuple(r for _, r in _ordered([(d, r) for r in d.replicas], order))) for d in dirs]
    by_dir = totals_by_dir(dirs)
    shown = [Section(body=totals_table(by_dir, "dir"))]
    if replicas:
        # Usually nothing moves.
        shown.append(Section(body=Table(_REPLICA[:-1], replicas).unless_empty("is_future")))
    code = _exit_code([d for d in dirs if d.error])
    return Report(
        dirs, Table(_REPLICA, rows), shown, notes, code, log_dir_metrics(by_dir), lambda: kafka.log_dirs_text(dirs)
    )


def totals_report(totals: Sequence[DirTotals], subject: str, *, order: str, failed: Sequence[LogDir]) -> Report:
    """A row per log dir, broker or topic."""
    ordered = sorted(totals, key=lambda row: _rank(row, order))
    shown = Section(body=totals_table(ordered, subject))
    notes = () if totals else ("no replicas",)
    # Totals of topics contain nothing from a failed broker or log dir, so those are named beside them.
    missing = () if subject != "topic" else tuple(f"missing: {_place(log_dir)}: {log_dir.error}" for log_dir in failed)
    table = Table.of(_TOTALS, ordered)
    return Report(ordered, table, (shown,), notes + missing, _exit_code(failed), log_dir_metrics(ordered))


def totals_table(totals: Sequence[DirTotals], subject: str) -> Table:
    """Return the table of totals for people, without empty columns."""
    full = Column("used_percent", Kind.NUMBER, title="Used %", tone=_full_tone)
    columns = (*_TOTALS[:-1], full, _TOTALS[-1])
    subjects = _SUBJECTS[subject]
    filled = {column.name for column in columns if any(getattr(total, column.name) for total in totals)}
    # What is left of a volume says more than how large it is.
    wanted = (filled - {"broker", "log_dir", "topic", "total_bytes"}) | {*subjects, "replica_count", "size_bytes"}
    if subject != "topic":
        wanted.discard("largest_bytes")
    return Table.of(columns, totals).with_only(wanted)


def _ordered(pairs: list[tuple[LogDir, DirReplica]], order: str) -> list[tuple[LogDir, DirReplica]]:
    if order == "size":
        pairs.sort(key=lambda pair: -pair[1].size_bytes)
    elif order == "lag":
        pairs.sort(key=lambda pair: -(pair[1].offset_lag or 0))
    return pairs


def _rank(totals: DirTotals, order: str) -> tuple[object, ...]:
    first = {"size": -totals.size_bytes, "lag": -(totals.offset_lag_max or 0)}.get(order, 0)
    return (first, -1 if totals.broker is None else totals.broker, totals.log_dir or "", totals.topic or "")


def _place(log_dir: LogDir) -> str:
    return f"broker {log_dir.broker}" if log_dir.log_dir is None else f"{log_dir.log_dir} of broker {log_dir.broker}"


def _notes(dirs: Sequence[LogDir]) -> tuple[str, ...]:
    return () if any(log_dir.replicas for log_dir in dirs) else ("no replicas",)


def _exit_code(failed: Sequence[LogDir]) -> ExitCode:
    return ExitCode.BAD_ANSWER if failed else ExitCode.DONE
