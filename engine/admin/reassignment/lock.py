"""The lock that lets one operator at a time carry out plans in a cluster. It lives in the cluster, never in a file.

Two places hold it. A holder takes both, as far as it can reach them, so that an operator who knows ZooKeeper and one
who knows only brokers exclude each other:

* an ephemeral znode, if ZooKeeper is named;
* the membership of the consumer group ``klamm-plan-lock``: the group's first member is its leader for as long as it
  lives, and the coordinator ends the membership of a silent member. It needs only the wire.

Both end by themselves, one session timeout after their holder was killed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Unreachable
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.reassignment.lock_holder import Holder, LockHeld
from engine.common.errors import KlammError

SESSION_TIMEOUT_S = 10.0
"""How long the lock outlives a holder that was killed."""

_LOOK_LIMIT_S = 3.0
"""How long a mere look at the lock waits for one place."""

_RETRY_PAUSE_S = 0.25
_PATIENCE_SHARE = 1.5
"""A dead holder is gone after this share of the session time-out; one that still exists then is alive."""


class LockPlace(Protocol):
    """One place in the cluster that holds the lock."""

    async def take(self) -> None:
        """Take it; do nothing if it is mine already.

        Raises:
            LockHeld: another operator has it.
        """

    async def is_mine(self) -> bool:
        """Whether this lock is held at the moment, as far as klamm can tell."""

    async def holder(self) -> Holder | None:
        """Return who holds it; None if it is free."""

    async def give_back(self) -> None:
        """Release it, if it is mine, and close what was opened for it."""


class OperatorLock:
    """The lock while it is held."""

    def __init__(self, places: Sequence[LockPlace]) -> None:
        self._places = places

    async def ensure(self) -> None:
        """Return once the lock is held; take again what was lost and nobody else has.

        Raises:
            LockHeld: another operator has it.
            Unreachable: that cannot be found out.
        """
        for place in self._places:
            if not await place.is_mine():
                await place.take()


@asynccontextmanager
async def operator_lock(
    cluster: Cluster,
    holder: Holder,
    *,
    session_timeout_s: float = SESSION_TIMEOUT_S,
    on_wait: Callable[[Holder], None] = lambda _: None,
) -> AsyncIterator[OperatorLock]:
    """Hold the lock. Wait for a holder that may be dead as long as its session may last.

    Raises:
        LockHeld: another live operator has it.
        Unreachable: no place of the cluster can hold it.
    """
    places: list[LockPlace] = []
    try:
        for place, is_enough_without in lock_places(cluster, holder, session_timeout_s):
            places.append(place)
            try:
                await _take(place, session_timeout_s, cluster.timeout_s, on_wait)
            except LockHeld:
                raise
            except KlammError as error:
                if not is_enough_without:
                    raise
                cluster.complain(f"only ZooKeeper holds the lock, the brokers do not: {error}")
                places.remove(place)
                await place.give_back()
        yield OperatorLock(places)
    finally:
        for place in reversed(places):
            with suppress(KlammError, TimeoutError):
                async with asyncio.timeout(session_timeout_s):
                    await place.give_back()


async def read_holder(cluster: Cluster) -> Holder | None:
    """Return who holds the cluster's lock; None if it is free. A place that cannot be asked counts as free.

    Raises:
        Unreachable: no place can be asked.
    """
    failures: list[AdminError] = []
    places = lock_places(cluster, Holder.myself(""), SESSION_TIMEOUT_S)
    for place, _ in places:
        try:
            holder = await place.holder()
        except AdminError as error:
            failures.append(error)
            continue
        finally:
            with suppress(KlammError):
                await place.give_back()
        if holder is not None:
            return holder
    if len(failures) == len(places):
        raise failures[0]
    return None


async def plan_in_the_way(cluster: Cluster, topics: Collection[str] | None) -> Holder | None:
    """Return who carries out a plan that relies on these topics (None: on any), as far as a short look can tell.

    Whoever deletes or grows topics, moves their replicas or changes throttles asks this first: a running plan takes
    such a change for a failure, or copies without its limit. Not knowing must not keep an operator from repairing a
    cluster, so it counts as free.
    """
    places = lock_places(cluster, Holder.myself(""), SESSION_TIMEOUT_S)
    holders = await asyncio.gather(*(_look(cluster, place) for place, _ in places))
    return next((holder for holder in holders if holder is not None and holder.relies_on(topics)), None)


async def _look(cluster: Cluster, place: LockPlace) -> Holder | None:
    try:
        async with asyncio.timeout(_LOOK_LIMIT_S):
            return await place.holder()
    except (KlammError, TimeoutError) as error:
        why = str(error) or f"no answer within {_LOOK_LIMIT_S:g} s"
        cluster.observe(f"it is not known whether a plan is being carried out: {why}")
        return None
    finally:
        with suppress(KlammError, TimeoutError):
            async with asyncio.timeout(_LOOK_LIMIT_S):
                await place.give_back()


async def refuse_while_held(cluster: Cluster) -> None:
    """Raise LockHeld if an operator is carrying out a plan, as far as that can be found out."""
    holder = await plan_in_the_way(cluster, None)
    if holder is not None:
        raise LockHeld(holder)


def lock_places(cluster: Cluster, holder: Holder, session_timeout_s: float) -> list[tuple[LockPlace, bool]]:
    """Return the places that can hold the lock, and for each whether the lock is valid without it."""
    from engine.admin.reassignment.lock_by_group import GroupLock

    places: list[tuple[LockPlace, bool]] = []
    if cluster.target.may_ask_zookeeper:
        from engine.admin.reassignment.lock_by_znode import ZnodeLock

        places.append((ZnodeLock(cluster, holder, session_timeout_s), False))
    if cluster.target.may_ask_brokers:
        places.append((GroupLock(cluster, holder, session_timeout_s), bool(places)))
    return places


async def _take(place: LockPlace, session_timeout_s: float, limit_s: float, on_wait: Callable[[Holder], None]) -> None:
    deadline = time.monotonic() + session_timeout_s * _PATIENCE_SHARE
    is_told = False
    while True:
        try:
            async with asyncio.timeout(limit_s):
                await place.take()
        except LockHeld as error:
            if time.monotonic() >= deadline:
                raise
            if not is_told:
                on_wait(error.holder)
            is_told = True
            await asyncio.sleep(_RETRY_PAUSE_S)
        except TimeoutError as error:
            hint = Phrase("the group that holds it may lack brokers, see who is alive: ", Operation.LIST_BROKERS)
            raise Unreachable("cannot find out whether the plan lock is free", hint=hint) from error
        else:
            return
