"""Brokers with all that is known of them: a section per broker for eyes, a row per broker for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from cli.exit_codes import ExitCode
from cli.output.report import Column, Fields, Kind, Report, Section, Table, Tone
from cli.views.kafka.brokers import api_versions_text
from engine.admin.brokers.description import BrokerDetails, BrokerPartitions, has_trouble
from engine.admin.log_dirs.describing import NOT_ALIVE
from engine.common.quantities import size_text

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
