"""What zookeeper-shell prints for ``ls`` and ``get``."""

from __future__ import annotations

from collections.abc import Sequence

from cli.output.report import KafkaText
from engine.admin.znodes.tree import Znode


def children_text(address: str, znodes: Sequence[Znode], *, is_recursive: bool) -> KafkaText:
    """``ls``: the names of the children of the first one; with ``-R`` the path of each below it, too."""
    root = znodes[0]
    if is_recursive:
        return _said(address, "\n".join(znode.path for znode in znodes))
    names = sorted(znode.name for znode in znodes if znode.depth == root.depth + 1)
    return _said(address, f"[{', '.join(names)}]")


def data_text(address: str, znode: Znode) -> KafkaText:
    """``get``: the data as it is stored, without secrets."""
    return _said(address, str(znode.data) if znode.data else "null")


def _said(address: str, answer: str) -> KafkaText:
    event = "WatchedEvent state:SyncConnected type:None path:null"
    return KafkaText(f"Connecting to {address}\n\nWATCHER::\n\n{event}\n{answer}\n")
