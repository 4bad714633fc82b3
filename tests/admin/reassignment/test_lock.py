"""The plan lock where its place never answers."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from cli.framework.remedies import spelled
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.reassignment import lock
from engine.admin.reassignment.lock import operator_lock
from engine.admin.reassignment.lock_holder import Holder


def test_a_place_that_never_answers_is_told_with_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a group without a coordinator: fewer brokers live than its topic needs replicas."""

    class Silent(Mock):
        async def take(self) -> None:
            await asyncio.Event().wait()

        async def give_back(self) -> None:
            pass

    async def places(*_: object) -> list[tuple[Silent, bool]]:
        return [(Silent(), False)]

    monkeypatch.setattr(lock, "lock_places", places)

    async def scene() -> None:
        target = ClusterTarget("x", Origin.OPTIONS, None, (("b", 1),))
        async with Cluster(target, timeout_s=0.01) as cluster, operator_lock(cluster, Holder.myself("apply plan.json")):
            pass

    with pytest.raises(Unreachable, match="cannot find out whether the plan lock is free") as told:
        asyncio.run(scene())
    assert spelled(told.value.hint or "").endswith("see who is alive: klamm brokers list")
