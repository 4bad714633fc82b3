"""Znodes as an indented tree, or a single znode with all that is known about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cli.exit_codes import ExitCode
from cli.output.printer import json_text
from cli.output.report import Column, Fields, KafkaText, Kind, Report, Section, Table, Tone
from engine.admin.znodes.access_lists import AclChange
from engine.admin.znodes.tree import Znode
from engine.common.quantities import counted

_COLUMNS = (
    Column("path"),
    Column("version", Kind.NUMBER),
    Column("ephemeral_owner"),
    Column("kind", in_plain=False),
    Column("data"),
    Column("acl"),
)


def tree_report(znodes: Sequence[Znode], as_kafka: Callable[[], KafkaText | None] | None = None) -> Report:
    """One row per znode; on a terminal the names are indented."""
    has_acls = any(z.acl is not None for z in znodes)
    rows: list[Sequence[object]] = [
        (z.path, z.version, z.ephemeral_owner, z.kind, _one_line(z.data), *((_acl(z),) if has_acls else ()))
        for z in znodes
    ]
    base = znodes[0].depth
    columns = [Column("znode"), Column("version", Kind.NUMBER), Column("owner", tone=lambda _: Tone.QUIET)]
    shown = Table(
        (*columns, *((Column("acl"),) if has_acls else ()), Column("data")),
        [
            (_indented(z, base), z.version, z.ephemeral_owner, *((_acl(z),) if has_acls else ()), _one_line(z.data))
            for z in znodes
        ],
    )
    complaints = [z.complaint for z in znodes if z.complaint is not None]
    table = Table(_COLUMNS if has_acls else _COLUMNS[:-1], rows)
    return Report(znodes, table, (Section(body=shown),), complaints, as_kafka=as_kafka)


def znode_report(znode: Znode, as_kafka: Callable[[], KafkaText | None] | None = None) -> Report:
    """All that is known of one znode; its data alone in plain."""
    pairs = [
        ("path", znode.path),
        ("kind", znode.kind),
        ("version", znode.version),
        ("ephemeral owner", znode.ephemeral_owner),
        ("children", znode.children_count),
        ("czxid", f"{znode.czxid} ({znode.czxid:#x})"),
        ("mzxid", f"{znode.mzxid} ({znode.mzxid:#x})"),
        ("created", znode.created),
        ("modified", znode.modified),
        *((("access list", _acl(znode)),) if znode.acl is not None else ()),
    ]
    data = _one_line(znode.data) if isinstance(znode.data, (str, int)) else json_text(znode.data)
    sections = (Section(body=Fields(pairs)), Section(text=(data or "-").splitlines()))
    notes = () if znode.complaint is None else (znode.complaint,)
    table = Table((Column("data"),), [(_one_line(znode.data),)])
    return Report(znode, table, sections, notes, as_kafka=as_kafka)


def acl_changes_report(changes: Sequence[AclChange]) -> Report:
    """Each znode whose access list changes; code 4 if ZooKeeper refused one."""
    rows = [(change.path, _spaced(change.before), _spaced(change.after), change.error) for change in changes]
    columns = (Column("path"), Column("before"), Column("after"), Column("error", tone=lambda _: Tone.BAD))
    refused = sum(change.error is not None for change in changes)
    if not refused:
        return Report(changes, Table(columns, rows))
    note = (
        f"ZooKeeper refused {refused} of {counted(len(changes), 'change')}: log in as the brokers, --jaas-config FILE"
    )
    return Report(changes, Table(columns, rows), notes=(note,), exit_code=ExitCode.REFUSED)


def _acl(znode: Znode) -> str | None:
    return _spaced(znode.acl)


def _spaced(acl: Sequence[str] | None) -> str | None:
    return None if acl is None else " ".join(acl)


def _indented(znode: Znode, base: int) -> str:
    depth = znode.depth - base
    return znode.path if depth == 0 else f"{'  ' * depth}{znode.name}"


def _one_line(data: object) -> str | None:
    if data is None or isinstance(data, str):
        return data
    return json_text(data, is_indented=False)
