"""The state of the feed's links to both sides, and of each stage: readers update it, frames report it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.admin.cluster.errors import AdminError, LoginRefused, Refused
from engine.admin.cluster.target import Side
from engine.admin.watch.frame import Link, LinkState, Stage, StageSource, StageStatus
from engine.common.clock import Clock
from engine.common.errors import ErrorCode, said_by
from engine.kafka.zk.errors import NoAuth, NotAdmitted

_DENIED_CODES = frozenset(
    code for code in ErrorCode if "AUTHORIZATION_FAILED" in code.name or "AUTHENTICATION" in code.name
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something could not be read, in words for users."""

    message: str
    is_denied: bool = False


def failure_of(error: BaseException) -> Failure:
    message = said_by(error)
    if isinstance(error, AdminError) and error.where:
        message = f"{message}: {error.where}"
    denied = isinstance(error, NoAuth | NotAdmitted | LoginRefused) or (
        isinstance(error, Refused) and error.code in _DENIED_CODES
    )
    return Failure(message, denied)


class Board:
    """Links and stages of one feed. Times are the wall clock's."""

    def __init__(self, clock: Clock, addresses: Mapping[Side, str]) -> None:
        """Make a board; ``addresses`` are those of the sides that may be asked."""
        self._clock = clock
        now_ms = clock.now_ms()
        self.links: dict[Side, Link] = {
            side: Link(LinkState.CONNECTING, addresses[side], now_ms) if side in addresses else Link(LinkState.UNUSED)
            for side in Side
        }
        self.stages: dict[Stage, StageStatus] = {stage: StageStatus() for stage in Stage}

    # Links

    def is_connected(self, side: Side) -> bool:
        return self.links[side].state is LinkState.CONNECTED

    def answered(self, side: Side) -> None:
        """This side has just answered something."""
        link, now_ms = self.links[side], self._clock.now_ms()
        if link.state is not LinkState.CONNECTED:
            link = Link(LinkState.CONNECTED, link.address, now_ms)
        self.links[side] = replace(link, last_answer_ms=now_ms)

    def lost(self, side: Side, failure: Failure, next_try_ms: int | None = None) -> None:
        """This side does not answer, or refuses."""
        link = self.links[side]
        state = LinkState.DENIED if failure.is_denied else LinkState.LOST
        since_ms = link.since_ms if link.state is state else self._clock.now_ms()
        self.links[side] = replace(link, state=state, since_ms=since_ms, cause=failure.message, next_try_ms=next_try_ms)

    def trying(self, side: Side) -> None:
        """This side is being tried right now."""
        self.links[side] = replace(self.links[side], next_try_ms=None)

    # Stages

    def unreadable(self, stage: Stage, why: str) -> None:
        """This stage cannot be read."""
        self.stages[stage] = replace(self.stages[stage], source=None, error=why)

    def read(
        self,
        stage: Stage,
        source: StageSource,
        *,
        cost_ms: float | None = None,
        requests: int = 0,
        interval_ms: int | None = None,
        missing: tuple[str, ...] = (),
        read_at_ms: int | None = None,
    ) -> None:
        """A stage was read successfully; ``read_at_ms`` None is now."""
        at_ms = self._clock.now_ms() if read_at_ms is None else read_at_ms
        before = self.stages[stage]
        cost_ms = before.cost_ms if cost_ms is None else cost_ms
        self.stages[stage] = StageStatus(
            source, at_ms, cost_ms, requests or before.requests, interval_ms, missing=missing
        )

    def failed(self, stage: Stage, failure: Failure) -> None:
        """A stage could not be read; its data keep their age."""
        self.stages[stage] = replace(self.stages[stage], error=failure.message, is_denied=failure.is_denied)

    def statuses(self) -> dict[Stage, StageStatus]:
        """Return the status of all stages now. Watched data are valid as long as ZooKeeper answers."""
        statuses = dict(self.stages)
        heard_ms = self.links[Side.ZOOKEEPER].last_answer_ms
        for stage, status in statuses.items():
            if status.source is StageSource.WATCH and status.read_at_ms is not None and heard_ms is not None:
                statuses[stage] = replace(status, read_at_ms=max(status.read_at_ms, heard_ms))
        return statuses
