"""ZooKeeper's znodes, decoded by the classes with which the engine writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tui.drawing.cells import NO_DATA, Cell, Column, Tone, figure
from tui.drawing.lines import Line, line
from tui.drawing.units import plain
from tui.pages.page import Page, View
from tui.state.location import Location, Only
from tui.state.off_board import ZnodeLevel
from tui.state.table_model import Rows

if TYPE_CHECKING:
    # The import for reading znodes is slow, so it waits until the screen is opened.
    from engine.admin.znodes.tree import Znode


def value_text(data: object) -> str:
    """Return what a znode says, on one line."""
    if data is None:
        return ""
    return plain(data if isinstance(data, str) else json.dumps(_simple(data), ensure_ascii=False))


def _simple(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _simple(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return _simple(value.value)
    if isinstance(value, dict):
        return {str(_simple(key)): _simple(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_simple(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _modified(znode: Znode) -> Cell:
    """Return when it was written; ZooKeeper's own znodes were never written, and have the year 1970."""
    is_known = znode.modified is not None and znode.modified.timestamp()
    return Cell(f"{znode.modified:%Y-%m-%d %H:%M:%S}", Tone.QUIET) if is_known else NO_DATA


COLUMNS = (
    Column("name", "ZNODE", lambda z: Cell(z.name + ("/" if z.children_count else ""), Tone.STRONG),
           lambda z: z.name, width=20),
    figure("children", "CHILDREN", "children_count", rank=3,
           tone=lambda z: Tone.PLAIN if z.children_count else Tone.QUIET),
    figure("version", "VERSION", "version", rank=1),
    Column("kind", "KIND", lambda z: Cell(z.kind or "", Tone.QUIET), lambda z: z.kind, rank=5),
    Column("owner", "SESSION", lambda z: Cell(z.ephemeral_owner or "", Tone.ACCENT), lambda z: z.ephemeral_owner,
           rank=4),
    Column("modified", "MODIFIED", _modified, lambda z: z.modified, rank=6),
    Column("data", "VALUE", lambda z: Cell(z.complaint or value_text(z.data), Tone.WARN if z.complaint else Tone.PLAIN),
           lambda z: value_text(z.data), is_wide=True, width=20),
)  # fmt: skip


def rows_of(level: ZnodeLevel, only: Only | None = None) -> Rows:
    """Return the children of a znode; with ``only``, those that cannot be read."""
    none = "it has no children" if only is None else f"no znode here is {only} any more"
    empty = "reading …" if level.is_loading else level.error or none
    return Rows(
        COLUMNS,
        level.znodes[1:],
        lambda z: z.path,
        lambda z: f"{z.path} {value_text(z.data)}",
        empty,
        None if only is None else lambda z: bool(z.complaint),
    )


def summary_of(level: ZnodeLevel) -> list[Line]:
    """Return the path and what the znode itself says."""
    if not level.znodes:
        return [line((level.path, Tone.STRONG))]
    own = level.znodes[0]
    text = own.complaint or value_text(own.data)
    owner = f"   session {own.ephemeral_owner}" if own.ephemeral_owner else ""
    return [
        line((level.path, Tone.STRONG), (f"   version {own.version}   {own.kind or ''}{owner}", Tone.QUIET)),
        line((text, Tone.WARN if own.complaint else Tone.PLAIN)),
    ]


def command(view: View, items: Sequence[Any]) -> list[str]:
    if len(items) == 1:
        return ["zk", "get", items[0].path]
    return ["zk", "tree", view.location.path or "/", "--depth", "1"]


PAGE = Page(
    "zookeeper",
    lambda view: rows_of(view.off_board.znodes, view.location.only),
    lambda view, width: summary_of(view.off_board.znodes),
    lambda view, znode: Location("zookeeper", path=znode.path),
    lambda view, item: item.complaint is not None,
    command,
)
