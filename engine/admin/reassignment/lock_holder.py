"""Who holds the plan lock, and the error that says so. ``lock`` implements the lock."""

from __future__ import annotations

import getpass
import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from engine.admin.cluster.errors import AdminError, FailureKind


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock, since when (ISO 8601, UTC), and for what."""

    who: str
    since: str
    what: str

    @classmethod
    def myself(cls, what: str) -> Holder:
        """Return this process as the holder."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.getuid())
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return cls(f"{user}@{socket.gethostname()} (pid {os.getpid()})", now, what)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Holder:
        """Return the holder that was written; unreadable data means an unknown holder."""
        with suppress(ValueError, TypeError):
            found = json.loads(data)
            return cls(*(str(found[key]) for key in ("who", "since", "what")))
        return cls("somebody", "an unknown time", "something")

    def __str__(self) -> str:
        return f"{self.who} since {self.since}"


class LockHeld(AdminError):
    """Another operator holds the lock."""

    kind = FailureKind.REFUSED

    def __init__(self, holder: Holder) -> None:
        hint = "wait for it to end; a lock whose holder was killed ends by itself when its session does"
        super().__init__(f"another operator is carrying out a plan: {holder}", where=holder.what, hint=hint)
        self.holder = holder
