"""Whole operations on scripted brokers: the order of steps, and what remains when one is interrupted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from event_loop import staged
from scripted_brokers import ScriptedBroker, scripted_cluster
from scripted_moves import OTHER_DIR, SIZE, TOPIC, ScriptedMoves

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AnswerLost, BadRequest, NotFound, Refused
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.reassignment import execute
from engine.admin.reassignment.access import check_planned_for, list_running
from engine.admin.reassignment.cancel import CancelResult, cancel_reassignments, prepare_cancellation
from engine.admin.reassignment.execute import ExecutedReassignment, execute_reassignment
from engine.admin.reassignment.generate import generate_reassignment
from engine.admin.reassignment.moves import ReassignmentProgress, ReassignmentState, Refusal
from engine.admin.reassignment.prepare import PreparedReassignment, prepare_reassignment
from engine.admin.reassignment.reassignment_file import PartitionMove, parse_plan, planned_cluster_id
from engine.admin.reassignment.throttle_settings import REPLICA_LISTS, Throttle, read_list
from engine.admin.reassignment.throttles import set_throttle
from engine.admin.reassignment.verify import follow_reassignment, verify_reassignment
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from engine.kafka.zk.errors import NoAuth

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
PLAN = (PartitionMove(T0, (1, 2)), PartitionMove(T1, (2, 1)))
THROTTLE = Throttle(50_000)
ALL_BROKERS = ["broker 0", "broker 1", "broker 2"]

Scene = Callable[["Stage"], Awaitable[None]]


class Watcher:
    """Notes its messages beside the changes, and does something when it gets a look."""

    def __init__(self, log: list[str], on_show: Callable[[int], None]) -> None:
        self.looks: list[ReassignmentProgress] = []
        self._log = log
        self._on_show = on_show

    def saved(self, rollback_file: Path) -> None:
        replicas = [partition["replicas"] for partition in json.loads(rollback_file.read_text())["partitions"]]
        self._log.append(f"saved {replicas}")

    def dropped(self, rollback_file: Path) -> None:
        assert not rollback_file.exists()
        self._log.append("dropped")

    def started(self, refusals: Sequence[Refusal]) -> None:
        self._log.append("started")

    def show(self, progress: ReassignmentProgress) -> None:
        self.looks.append(progress)
        self._log.append("shown")
        self._on_show(len(self.looks))

    def end(self) -> None:
        self._log.append("end")


class Stage:
    """Three brokers with the partitions t-0, t-1 and u-0 on the first two."""

    def __init__(self, moves: ScriptedMoves, cluster: Cluster, folder: Path, brokers: Sequence[ScriptedBroker]) -> None:
        self.moves = moves
        self.brokers = brokers
        self.cluster = cluster
        self.file = folder / "back.json"
        self.watcher = Watcher(moves.log, self._show)
        self.on_look: Callable[[int], None] = lambda look: moves.finish() if look == 2 else None

    async def prepare(
        self, plan: Sequence[PartitionMove] = PLAN, throttle: Throttle = THROTTLE, *, is_additional: bool = False
    ) -> PreparedReassignment:
        return await prepare_reassignment(self.cluster, plan, throttle, is_additional=is_additional)

    async def execute(
        self, prepared: PreparedReassignment | None = None, *, waits: bool = True, limit_s: float | None = None
    ) -> ExecutedReassignment:
        return await execute_reassignment(
            self.cluster,
            await self.prepare() if prepared is None else prepared,
            self.watcher,
            rollback_file=self.file,
            goes_on="look again",
            waits=waits,
            limit_s=limit_s,
        )

    def _show(self, look: int) -> None:
        self.on_look(look)


def play(scene: Scene, *, tmp_path: Path) -> None:
    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(3) as brokers:
            moves = ScriptedMoves(brokers, {T0: (0, 1), T1: (0, 1), U0: (0, 1)})
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
            log = moves.log
            async with Cluster(
                target, complain=pytest.fail, accepted=lambda text: log.append(f"accepted: {text}"), timeout_s=20
            ) as cluster:
                await scene(Stage(moves, cluster, tmp_path, brokers.brokers))

    asyncio.run(playing())


STARTED = [
    "saved [[0, 1], [0, 1]]",
    "accepted: look again",
    "throttle topic t",
    *(f"throttle {broker}" for broker in ALL_BROKERS),
    "start t-0",
    "start t-1",
]
CLEARED = [*(f"clear {broker}" for broker in ALL_BROKERS), "clear topic t"]


@staged(play)
async def test_an_execution_from_the_way_back_to_the_end_of_its_throttle(stage: Stage, /) -> None:
    done = await stage.execute()
    assert stage.moves.log == [*STARTED, "started", "shown", "shown", "shown", "end", *CLEARED]
    assert [status.state for status in done.statuses] == [ReassignmentState.COMPLETE] * 2
    assert (done.refusals, done.cleared.topics, done.cleared.brokers) == ([], ("t",), (0, 1, 2))
    assert stage.moves.throttled() == []
    first, *_, last = stage.watcher.looks
    assert (first.overall.moved_bytes, first.overall.total_bytes, first.done_count) == (0, 2000, 0)
    assert (last.overall.moved_bytes, last.overall.total_bytes, last.done_count) == (2000, 2000, 2)


@staged(play)
async def test_nothing_is_changed_where_the_way_back_cannot_be_saved(stage: Stage, /) -> None:
    stage.file.write_text("an earlier one")
    with pytest.raises(FileExistsError):
        await stage.execute()
    assert stage.moves.log == []
    assert stage.file.read_text() == "an earlier one"


@staged(play)
async def test_a_start_that_is_refused_leaves_no_throttle(stage: Stage, /) -> None:
    stage.moves.refuses_all = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(Refused, match="CLUSTER_AUTHORIZATION_FAILED"):
        await stage.execute()
    assert stage.moves.log == [*STARTED[:-2], *CLEARED, "dropped"]
    assert stage.moves.throttled() == []
    assert not stage.file.exists(), "there is nothing to roll back"


@staged(play)
async def test_a_start_that_zookeeper_forbids_leaves_no_throttle(
    stage: Stage, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forbidden:
        async def alter(self, targets: object) -> list[Refusal]:
            raise NoAuth(path="/admin/reassign_partitions")

    async def changer(cluster: Cluster) -> Forbidden:
        return Forbidden()

    prepared = await stage.prepare()
    monkeypatch.setattr(execute, "reassignment_changer", changer)
    with pytest.raises(NoAuth):
        await stage.execute(prepared)
    assert stage.moves.log == [*STARTED[:-2], *CLEARED, "dropped"]
    assert stage.moves.throttled() == []


@staged(play)
async def test_partitions_that_are_all_refused_leave_no_throttle(stage: Stage, /) -> None:
    stage.moves.refuses = dict.fromkeys((T0, T1), ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    done = await stage.execute(waits=False)
    assert stage.moves.log == [*STARTED, *CLEARED, "dropped", "started"]
    assert [(refusal.name, refusal.code) for refusal in done.refusals] == list(stage.moves.refuses.items())
    assert [status.state for status in done.statuses] == [ReassignmentState.FAILED] * 2


@staged(play)
async def test_one_partition_that_is_refused_leaves_the_others_under_their_throttle(stage: Stage, /) -> None:
    stage.moves.refuses = {T1: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    done = await stage.execute(waits=False)
    assert [refusal.name for refusal in done.refusals] == [T1]
    assert stage.file.exists()
    assert stage.moves.log == [*STARTED, "started"]
    assert stage.moves.throttled() == ["topic t", *ALL_BROKERS]


@staged(play)
async def test_an_execution_whose_answer_is_lost_goes_on_under_its_throttle(stage: Stage, /) -> None:
    stage.moves.loses_answers = "after"
    done = await stage.execute(waits=False)
    assert {status.state for status in done.statuses} == {ReassignmentState.IN_PROGRESS}
    assert stage.moves.log == [*STARTED, "started"]
    assert stage.moves.throttled() == ["topic t", *ALL_BROKERS]


@staged(play)
async def test_a_start_that_nobody_tells_of_keeps_its_throttle_and_says_so(stage: Stage, /) -> None:
    """The move may begin later: the controller may not have reached it yet."""
    stage.moves.loses_answers = "before"
    with pytest.raises(AnswerLost, match="may have begun or begin later; its throttle stays"):
        await stage.execute()
    assert stage.file.exists()
    assert stage.moves.throttled() == ["topic t", *ALL_BROKERS]
    assert (await verify_reassignment(stage.cluster, PLAN)).cleared.topics == ("t",)
    assert stage.moves.throttled() == []


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR])
@staged(play)
async def test_an_answer_that_does_not_refuse_keeps_the_throttle(stage: Stage, /, code: ErrorCode) -> None:
    stage.moves.refuses_all = code
    with pytest.raises(AnswerLost):
        await stage.execute()
    assert stage.file.exists()
    assert stage.moves.throttled() == ["topic t", *ALL_BROKERS]


@staged(play)
async def test_a_silent_broker_keeps_its_own_throttle_only(stage: Stage, /) -> None:
    """The topics also keep their marks, so that later readers know that its rate is klamm's."""
    stage.cluster.timeout_s = 2.0
    await stage.execute(waits=False)
    stage.moves.finish()
    stage.moves.silent = {1}
    cleared = (await verify_reassignment(stage.cluster, PLAN)).cleared
    assert cleared.brokers == (0, 2)
    assert [line for line in cleared.left if line.startswith("broker 1: ")] == list(cleared.left)
    assert stage.moves.throttled() == ["topic t", "broker 1"]
    stage.moves.silent = set()
    assert (await verify_reassignment(stage.cluster, PLAN)).cleared.brokers == (1,)
    assert stage.moves.throttled() == []


@staged(play)
async def test_a_refusal_is_what_is_told_of_though_the_throttle_cannot_be_taken_off(stage: Stage, /) -> None:
    def fall_silent_and_refuse(_: object) -> AlterPartitionReassignmentsResponse:
        stage.moves.silent = {1}
        return AlterPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    stage.cluster.timeout_s = 3.0
    complaints: list[str] = []
    stage.cluster.complain = complaints.append
    stage.brokers[0].answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = fall_silent_and_refuse
    with pytest.raises(Refused, match="CLUSTER_AUTHORIZATION_FAILED"):
        await stage.execute()
    assert [complaint[:21] for complaint in complaints] == ["broker 1: cannot tell"]


@staged(play)
async def test_two_operators_who_set_their_throttles_at_once_leave_none_behind(stage: Stage, /) -> None:
    """One replaces some of the other's rates, so the mark must outlive its topic's own move."""
    other = Throttle(60_000)
    of_t = await stage.prepare()
    of_u = await stage.prepare([PartitionMove(U0, (1, 2))], other)
    assert of_t.throttle is not None and of_u.throttle is not None
    halves = [replace(move.throttle, brokers={}) for move in (of_t, of_u) if move.throttle]
    for half in halves:
        await set_throttle(stage.cluster, half)
    for broker, first, second in ((0, of_t, of_u), (1, of_u, of_t), (2, of_t, of_u)):
        for move in (first, second):
            assert move.throttle is not None
            rates = {broker: move.throttle.brokers[broker]}
            await set_throttle(stage.cluster, replace(move.throttle, topics={}, brokers=rates))
    stage.moves.start(U0, (1, 2))
    assert (await verify_reassignment(stage.cluster, [PartitionMove(T0, (0, 1))])).cleared.brokers == ()
    assert stage.moves.throttled() == ["topic t", "topic u", *ALL_BROKERS]
    assert stage.moves.settings[TOPIC, "t"] == dict.fromkeys(REPLICA_LISTS, "50000:2147483647")
    stage.moves.finish()
    cleared = (await verify_reassignment(stage.cluster, [PartitionMove(U0, (1, 2))])).cleared
    assert cleared.left == ()
    assert stage.moves.throttled() == []


@staged(play)
async def test_a_throttle_that_another_operator_cleared_before_the_start_is_set_again(stage: Stage, /) -> None:
    """The other operator saw nothing moving under the throttle."""
    reassign = stage.brokers[0].answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS]

    def clear_and_start(request: AlterPartitionReassignmentsRequest) -> object:
        stage.moves.settings.clear()
        return reassign(request)

    stage.brokers[0].answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = clear_and_start
    await stage.execute(waits=False)
    assert stage.moves.moving == [T0, T1]
    assert stage.moves.throttled() == ["topic t", *ALL_BROKERS]


@staged(play)
async def test_what_another_operator_marked_after_the_preparation_stays(stage: Stage, /) -> None:
    prepared = await stage.prepare()
    marked = dict.fromkeys(REPLICA_LISTS, "7:9,60000:2147483647,3:1")
    stage.moves.settings[TOPIC, "t"] = marked
    await stage.execute(prepared, waits=False)
    lists = [read_list(stage.moves.settings[TOPIC, "t"][key]) for key in REPLICA_LISTS]
    assert [throttled.others for throttled in lists] == [("7:9",)] * 2
    assert all({"50000:2147483647", "60000:2147483647"} == {*throttled.marks} for throttled in lists)
    assert all("3:1" in throttled.ours and len(throttled.ours) > 1 for throttled in lists)


@staged(play)
async def test_whoever_breaks_it_off_leaves_it_going_on_and_anybody_clears_up(stage: Stage, /) -> None:
    looked = asyncio.Event()
    stage.on_look = lambda look: looked.set()
    execution = asyncio.create_task(stage.execute(), name="execution")
    await looked.wait()
    execution.cancel()
    with pytest.raises(asyncio.CancelledError):
        await execution
    assert stage.moves.log[-1] == "end"
    assert stage.moves.moving == [T0, T1]
    assert stage.moves.throttled() == ["topic t", *ALL_BROKERS]

    under_way = await verify_reassignment(stage.cluster, PLAN)
    assert {status.state for status in under_way.statuses} == {ReassignmentState.IN_PROGRESS}
    assert stage.moves.throttled() == ["topic t", *ALL_BROKERS]
    stage.moves.finish()
    for keeps_throttles, left in ((True, ["topic t", *ALL_BROKERS]), (False, [])):
        verified = await verify_reassignment(stage.cluster, PLAN, keeps_throttles=keeps_throttles)
        assert {status.state for status in verified.statuses} == {ReassignmentState.COMPLETE}
        assert stage.moves.throttled() == left


@staged(play)
async def test_when_the_time_for_waiting_is_over_the_throttle_stays(stage: Stage, /) -> None:
    stage.on_look = lambda look: None
    done = await stage.execute(limit_s=0.0)
    assert {status.state for status in done.statuses} == {ReassignmentState.IN_PROGRESS}
    assert stage.moves.log == [*STARTED, "started", "shown", "end"]
    assert stage.moves.throttled() == ["topic t", *ALL_BROKERS]
    stage.on_look = lambda look: stage.moves.finish()
    verified = await verify_reassignment(stage.cluster, PLAN, watcher=stage.watcher)
    assert verified.cleared.topics == ("t",)
    assert stage.moves.log == [*STARTED, "started", "shown", "end", "shown", "shown", "end", *CLEARED]


@staged(play)
async def test_a_read_only_profile_keeps_its_throttles(stage: Stage, /) -> None:
    await stage.execute(waits=False)
    stage.moves.finish()
    stage.cluster.target = replace(stage.cluster.target, is_read_only=True)
    verified = await verify_reassignment(stage.cluster, PLAN)
    assert {status.state for status in verified.statuses} == {ReassignmentState.COMPLETE}
    assert stage.moves.throttled() == ["topic t", *ALL_BROKERS]


@staged(play)
async def test_a_throttle_alone_is_changed_without_a_way_back(stage: Stage, /) -> None:
    await stage.execute(waits=False)
    stage.file.unlink()
    stage.moves.log.clear()
    with pytest.raises(Refused, match="being reassigned already"):
        await stage.prepare()
    await stage.execute(await stage.prepare(throttle=Throttle(90_000), is_additional=True), waits=False)
    throttled = ["throttle topic t", *(f"throttle {broker}" for broker in ALL_BROKERS)]
    assert stage.moves.log == ["accepted: look again", *throttled, "started"]
    assert not stage.file.exists()


@staged(play)
async def test_replicas_are_sent_to_log_dirs_under_the_throttle_and_before_they_move(stage: Stage, /) -> None:
    plan = [PartitionMove(T0, (0, 2), (OTHER_DIR, "any"))]
    await stage.execute(await stage.prepare(plan), waits=False)
    changes = stage.moves.log
    assert changes.index("throttle broker 2") < changes.index("move t-0 on 0 to /b") < changes.index("start t-0")


@staged(play)
async def test_a_move_between_log_dirs_is_followed_and_keeps_its_throttle_to_the_end(stage: Stage, /) -> None:
    plan = [PartitionMove(T0, (0, 1), (OTHER_DIR, "any"))]
    done = await stage.execute(await stage.prepare(plan, Throttle(None, 50_000)), waits=False)
    assert stage.file.exists()
    assert [status.state for status in done.statuses] == [ReassignmentState.IN_PROGRESS]
    assert [(status.remaining_bytes, status.total_bytes) for status in done.statuses] == [(SIZE, SIZE)]
    assert stage.moves.throttled() == ["topic t", "broker 0"]
    stage.on_look = lambda look: stage.moves.finish()
    verified = await verify_reassignment(stage.cluster, plan, watcher=stage.watcher)
    assert [status.state for status in verified.statuses] == [ReassignmentState.COMPLETE]
    assert stage.moves.throttled() == []


@staged(play)
async def test_the_way_back_leads_into_the_log_dirs_that_replicas_lay_in(stage: Stage, /) -> None:
    stage.moves.dirs[T0, 1] = OTHER_DIR
    plan = [PartitionMove(T0, (0, 1), (OTHER_DIR, "any")), PartitionMove(T1, (1, 0))]
    prepared = await stage.prepare(plan)
    assert [str(planned_move) for planned_move in prepared.planned] == [
        "t-0: broker 0: /a → /b",
        "t-1: 0,1 → 1,0",
    ]
    assert [planned_move.bytes_to_copy for planned_move in prepared.planned_with({T0: 700, T1: 300})] == [700, 0]
    await stage.execute(prepared, waits=False)
    back = stage.file.read_text()
    assert [(move.name, move.wanted_dirs) for move in parse_plan(back, "f")] == [
        (T0, {0: "/a", 1: OTHER_DIR}),
        (T1, {}),
    ]
    assert planned_cluster_id(back) == "scripted"
    await check_planned_for(stage.cluster, planned_cluster_id(back), "f")
    await check_planned_for(stage.cluster, None, "f")
    with pytest.raises(BadRequest, match="for cluster other, and this is cluster scripted"):
        await check_planned_for(stage.cluster, "other", "f")


@staged(play)
async def test_a_dead_broker_may_keep_a_replica_and_gets_none(stage: Stage, /) -> None:
    stage.moves.put(T0, (7, 0))
    prepared = await stage.prepare([PartitionMove(T0, (7, 2))])
    assert prepared.warnings == ("t-0 keeps replicas on dead brokers: 7",)
    with pytest.raises(NotFound, match="broker 7 is dead, and gets no replica"):
        await stage.prepare([PartitionMove(T1, (7, 2))])


@staged(play)
async def test_a_target_that_has_died_is_not_waited_for_without_end(stage: Stage, /) -> None:
    stage.moves.start(T0, (7, 0))
    plan = [PartitionMove(T0, (7, 0))]
    stage.on_look = lambda look: None
    (status,) = await follow_reassignment(stage.cluster, plan, stage.watcher, dead_limit_s=0.3)
    assert (status.state, status.reason) == (ReassignmentState.IN_PROGRESS, "waits for dead broker 7")
    assert [partition.reason for look in stage.watcher.looks for partition in look.partitions][-1] == status.reason
    stage.moves.start(T1, (2, 0))
    stage.on_look = lambda look: stage.moves.finish() if look == 12 else None
    both = [*plan, PartitionMove(T1, (2, 0))]
    done = await follow_reassignment(stage.cluster, both, stage.watcher, dead_limit_s=0.0)
    assert {status.state for status in done} == {ReassignmentState.COMPLETE}, "something else still moved"


@staged(play)
async def test_a_cancellation_takes_the_throttle_off_at_last(stage: Stage, /) -> None:
    await stage.execute(waits=False)
    stage.moves.futures[T0, 1] = OTHER_DIR
    stage.moves.log.clear()
    plan = [PartitionMove(T0, (1, 2), (OTHER_DIR, "any")), PLAN[1], PartitionMove(U0, (1, 0))]
    prepared = await prepare_cancellation(stage.cluster, plan)
    assert [outcome.result for outcome in prepared.preview] == [
        CancelResult.WOULD_BE_CANCELLED, CancelResult.WOULD_BE_CANCELLED, CancelResult.NOT_ACTIVE,
    ]  # fmt: skip
    assert stage.moves.log == []
    done = await cancel_reassignments(stage.cluster, prepared, goes_on="look again")
    assert stage.moves.log == [
        "accepted: look again", "cancel t-0", "cancel t-1", "move t-0 on 1 to /a", *CLEARED,
    ]  # fmt: skip
    assert [(result.result, result.replicas) for result in done.results] == [
        (CancelResult.CANCELLED, (1, 0)),
        (CancelResult.CANCELLED, (1, 0)),
        (CancelResult.NOT_ACTIVE, (0, 1)),
    ]
    assert (done.kept_dirs, done.cleared.topics) == ([(T0, 1)], ("t",))


@staged(play)
async def test_a_cancellation_leaves_the_throttle_of_what_moves_on(stage: Stage, /) -> None:
    await stage.execute(waits=False)
    stage.moves.refuses = {T1: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    prepared = await prepare_cancellation(stage.cluster, None)
    assert prepared.names == (T0, T1)
    done = await cancel_reassignments(stage.cluster, prepared, goes_on="look again")
    assert [result.result for result in done.results] == [CancelResult.CANCELLED, CancelResult.FAILED]
    assert stage.moves.throttled() == ["topic t", *ALL_BROKERS]
    stage.moves.refuses = {}
    rest = await prepare_cancellation(stage.cluster, None)
    await cancel_reassignments(stage.cluster, rest, goes_on="look again", keeps_throttles=True)
    assert (stage.moves.moving, stage.moves.throttled()) == ([], ["topic t", *ALL_BROKERS])
    nothing = await prepare_cancellation(stage.cluster, None)
    stage.moves.log.clear()
    await cancel_reassignments(stage.cluster, nothing, goes_on="look again")
    assert stage.moves.log == CLEARED


@staged(play)
async def test_no_partition_is_cancelled_that_nobody_could_lead(stage: Stage, /) -> None:
    await stage.execute(waits=False)
    stage.moves.log.clear()
    stage.moves.lose_in_sync(T0, (2,))
    with pytest.raises(BadRequest, match="no replica could lead afterwards"):
        await prepare_cancellation(stage.cluster, PLAN)
    assert (await prepare_cancellation(stage.cluster, PLAN, is_forced=True)).running
    assert stage.moves.log == []


@staged(play)
async def test_what_is_under_way_and_what_would_be_generated(stage: Stage, /) -> None:
    assert await list_running(stage.cluster) == []
    plan = await generate_reassignment(stage.cluster, ["t"], [2, 1], draw=lambda _: 0)
    assert set(plan.current.values()) == {(0, 1)}
    assert {frozenset(replicas) for replicas in plan.proposed.values()} == {frozenset({1, 2})}
    await stage.execute(waits=False)
    (first, _) = await list_running(stage.cluster)
    assert (first.topic, first.partition, first.adding, first.removing) == ("t", 0, (2,), (0,))
