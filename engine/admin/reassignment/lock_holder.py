"""The holder of the plan lock, and the error that names it. ``lock`` implements the lock."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from engine.admin.cluster.errors import AdminError, FailureKind
from engine.admin.cluster.remedies import Parameter, Phrase

_TOPICS_MAX = 500
"""A plan for more topics names none: what holds the lock has to stay small."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock, since when (ISO 8601, UTC), and for what. ``topics`` are the plan's; None: not known."""

    who: str
    since: str
    what: str
    topics: tuple[str, ...] | None = None

    @classmethod
    def myself(cls, what: str, topics: Collection[str] | None = None) -> Holder:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        named = None if topics is None or len(topics) > _TOPICS_MAX else tuple(sorted(topics))
        return cls(f"{user}@{socket.gethostname()} (pid {os.getpid()})", now, what, named)

    def relies_on(self, topics: Collection[str] | None) -> bool:
        """Whether the plan may break if somebody else changes these topics (None: all, or brokers)."""
        return topics is None or self.topics is None or not set(topics).isdisjoint(self.topics)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Holder:
        """Return the holder that was written; unreadable data means an unknown holder."""
        with suppress(ValueError, TypeError):
            document = json.loads(data)
            topics = document.get("topics")
            named = tuple(map(str, topics)) if isinstance(topics, list) else None
            return cls(str(document["who"]), str(document["since"]), str(document["what"]), named)
        return cls("somebody", "an unknown time", "something")

    @property
    def description(self) -> str:
        return f"{self}: {self.what}"

    def __str__(self) -> str:
        return f"{self.who} since {self.since}"


class LockHeld(AdminError):
    """Another operator holds the lock."""

    kind = FailureKind.REFUSED

    def __init__(self, holder: Holder, *, may_be_forced: bool = False) -> None:
        """``may_be_forced``: what was refused can be done beside the plan, at the user's risk."""
        wait = "wait for it to end; a lock whose holder was killed ends by itself when its session does"
        hint = Phrase(wait, ", or go on all the same with ", Parameter.FORCE) if may_be_forced else wait
        super().__init__(f"another operator is carrying out a plan: {holder}", where=holder.what, hint=hint)
        self.holder = holder
