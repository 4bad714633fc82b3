"""A registry of callbacks for changes of znodes. It arms nothing and sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class WatchEventKind(Enum):
    """What happened to a watched znode."""

    CREATED = "created"
    DELETED = "deleted"
    DATA_CHANGED = "data changed"
    CHILDREN_CHANGED = "children changed"
    NEW_SESSION = "new session"
    """A new session replaced a lost one. Changes in between went unseen, so read again."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One notice that something happened to a znode. It does not have the znode's new content."""

    path: str
    kind: WatchEventKind


WatchCallback = Callable[[WatchEvent], None]
"""Runs in the event loop; must not block and should not raise."""


class WatchRegistry:
    """Callbacks by path, separate for data (creation, deletion, change) and for children."""

    def __init__(self) -> None:
        self._data: dict[str, list[WatchCallback]] = {}
        self._children: dict[str, list[WatchCallback]] = {}

    def add_data(self, path: str, callback: WatchCallback) -> None:
        self._data.setdefault(path, []).append(callback)

    def add_children(self, path: str, callback: WatchCallback) -> None:
        self._children.setdefault(path, []).append(callback)

    def remove(self, path: str, callback: WatchCallback | None) -> None:
        """Forget one callback of a path, or all of them."""
        for callbacks in (self._data, self._children):
            kept = [c for c in callbacks.get(path, ()) if callback is not None and c != callback]
            if kept:
                callbacks[path] = kept
            else:
                callbacks.pop(path, None)

    def wants_data(self, path: str) -> bool:
        return path in self._data

    def wants_children(self, path: str) -> bool:
        return path in self._children

    def data_paths(self) -> list[str]:
        return list(self._data)

    def children_paths(self) -> list[str]:
        return list(self._children)

    def callbacks_of(self, event: WatchEvent) -> list[WatchCallback]:
        """Return the callbacks for an event in order of registration."""
        if event.kind is WatchEventKind.CHILDREN_CHANGED:
            return list(self._children.get(event.path, ()))
        if event.kind is WatchEventKind.NEW_SESSION:
            return [*self._data.get(event.path, ()), *self._children.get(event.path, ())]
        if event.kind is WatchEventKind.DELETED:
            both = [*self._data.get(event.path, ()), *self._children.get(event.path, ())]
            return list(dict.fromkeys(both))
        return list(self._data.get(event.path, ()))
