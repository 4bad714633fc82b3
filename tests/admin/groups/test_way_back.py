"""A file holds the current offsets before the first one is reset."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_brokers import HANG_UP, scripted_cluster
from scripted_groups import ScriptedGroups

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.groups.committing import execute_reset
from engine.admin.groups.reset_plan import ResetResult, ResetSpec, ResetTo, TopicScope
from engine.admin.groups.resetting import PlannedReset, plan_reset
from engine.admin.groups.scope import scope_of
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey

Scene = Callable[[ScriptedGroups, Cluster, list[str]], Awaitable[None]]
SAVED = "t,0,60\n"


def play(scene: Scene, file: Path) -> None:
    """Note, in order, what is reported and committed, and what the file held then."""

    async def playing() -> None:
        log: list[str] = []

        def note(what: str) -> None:
            log.append(f"{what}: {file.read_text() if file.exists() else None}")

        async with asyncio.timeout(20), scripted_cluster(2) as brokers:
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
            async with Cluster(target, accepted=note, timeout_s=10) as cluster:
                world = ScriptedGroups(brokers, {})
                world.state = "Empty"
                commit = brokers.brokers[1].answers[ApiKey.OFFSET_COMMIT]

                def noted(request: Any) -> Any:
                    note("commit")
                    return commit(request)

                brokers.brokers[1].answers[ApiKey.OFFSET_COMMIT] = noted
                await scene(world, cluster, log)

    asyncio.run(playing())


async def execute(cluster: Cluster, plan: PlannedReset, file: Path, log: list[str]) -> list[ResetResult]:
    rows, _ = await execute_reset(
        cluster,
        plan,
        rollback_file=file,
        with_group=False,
        goes_on="go on",
        on_saved=lambda: log.append("saved"),
        on_dropped=lambda: log.append(f"dropped: {file.exists()}"),
    )
    return [row.result for row in rows]


def test_the_way_back_is_there_before_the_first_commit(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"

    async def scene(world: ScriptedGroups, cluster: Cluster, log: list[str]) -> None:
        world.offsets = {"g1": {("t", 0): 60}}
        scope = TopicScope((("t", (0, 1)),))
        plan = await plan_reset(cluster, scope_of(["g1"], is_all=False), scope, ResetSpec(ResetTo.LATEST))
        assert plan.uncommitted_count == 1
        assert await execute(cluster, plan, file, log) == [ResetResult.RESET] * 2
        assert log == ["saved", f"go on: {SAVED}", f"commit: {SAVED}"]
        log.clear()
        with pytest.raises(FileExistsError):
            await execute(cluster, plan, file, log)
        assert log == []

    play(scene, file)


def test_where_nothing_was_committed_there_is_no_file(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"

    async def scene(world: ScriptedGroups, cluster: Cluster, log: list[str]) -> None:
        scope = TopicScope((("t", (0,)),))
        plan = await plan_reset(cluster, scope_of(["g1"], is_all=False), scope, ResetSpec(ResetTo.LATEST))
        assert plan.uncommitted_count == 1
        assert await execute(cluster, plan, file, log) == [ResetResult.RESET]
        assert log == ["go on: None", "commit: None"]

    play(scene, file)


@pytest.mark.parametrize(
    ("answer", "result", "expected"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, ResetResult.FAILED, ["dropped: False"]),
        (HANG_UP, ResetResult.UNDER_WAY, []),
    ],
    ids=["refused", "lost"],
)
def test_only_what_is_refused_for_certain_leaves_no_file(
    answer: object, result: ResetResult, expected: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"

    async def scene(world: ScriptedGroups, cluster: Cluster, log: list[str]) -> None:
        world.offsets = {"g1": {("t", 0): 60}}
        scope = TopicScope((("t", (0,)),))
        plan = await plan_reset(cluster, scope_of(["g1"], is_all=False), scope, ResetSpec(ResetTo.LATEST))
        world.change_answers = [answer]
        assert await execute(cluster, plan, file, log) == [result]
        assert log == ["saved", f"go on: {SAVED}", f"commit: {SAVED}", *expected]
        assert file.exists() is not bool(expected)

    play(scene, file)
