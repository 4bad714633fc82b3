"""Znodes as an indented tree, or one with all that is known of it."""

from __future__ import annotations

from collections.abc import Sequence

from cli.output.printer import json_text
from cli.output.report import Column, Fields, Kind, Report, Section, Table, Tone
from engine.admin.znodes.tree import Znode

_COLUMNS = (
    Column("path"),
    Column("version", Kind.NUMBER),
    Column("ephemeral_owner"),
    Column("kind", in_plain=False),
    Column("data"),
)


def tree_report(znodes: Sequence[Znode]) -> Report:
    """One row per znode; on a terminal the names are indented."""
    rows = [(z.path, z.version, z.ephemeral_owner, z.kind, _one_line(z.data)) for z in znodes]
    base = znodes[0].depth
    shown = Table(
        (
            Column("znode"),
            Column("version", Kind.NUMBER),
            Column("owner", tone=lambda _: Tone.QUIET),
            Column("data"),
        ),
        [(_indented(z, base), z.version, z.ephemeral_owner, _one_line(z.data)) for z in znodes],
    )
    complaints = [z.complaint for z in znodes if z.complaint is not None]
    return Report(znodes, Table(_COLUMNS, rows), (Section(body=shown),), complaints)


def znode_report(znode: Znode) -> Report:
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
    ]
    data = _one_line(znode.data) if isinstance(znode.data, (str, int)) else json_text(znode.data)
    sections = (Section(body=Fields(pairs)), Section(text=(data or "-").splitlines()))
    notes = () if znode.complaint is None else (znode.complaint,)
    table = Table((Column("data"),), [(_one_line(znode.data),)])
    return Report(znode, table, sections, notes)


def _indented(znode: Znode, base: int) -> str:
    depth = znode.depth - base
    return znode.path if depth == 0 else f"{'  ' * depth}{znode.name}"


def _one_line(data: object) -> str | None:
    if data is None or isinstance(data, str):
        return data
    return json_text(data, is_indented=False)
