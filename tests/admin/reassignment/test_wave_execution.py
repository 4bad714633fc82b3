"""Waves on scripted brokers: order of changes, lost answers, gates, adaptive throttles, the lock."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from event_loop import staged
from scripted_brokers import HANG_UP, ScriptedBroker, ScriptedCluster, scripted_cluster
from scripted_lock import ScriptedLock
from scripted_moves import BROKER, SIZE, TOPIC, ScriptedMoves

from engine.admin.cluster import hung
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Refused, Unreachable
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.reassignment import throttles, wave_execution, wave_standings, wave_throttle
from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.journal import read_journal
from engine.admin.reassignment.lock_holder import Holder, LockHeld
from engine.admin.reassignment.moves import PartitionStatus
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.throttle_settings import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    Throttle,
    read_list,
    throttled_settings,
)
from engine.admin.reassignment.wave_execution import execute_waves
from engine.admin.reassignment.wave_progress import (
    Outcome,
    Step,
    WaveControl,
    WaveMeter,
    WaveProgress,
    WaveSettings,
    WavesResult,
)
from engine.admin.reassignment.waves import Wave, WaveMove
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from engine.kafka.protocol.apis.join_group import JoinGroupRequest
from engine.kafka.protocol.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
FIRST = (WaveMove(PartitionMove(T0, (0, 2)), (0, 1), SIZE),)
SECOND = (WaveMove(PartitionMove(T1, (0, 2)), (0, 1), SIZE),)
SOMEBODY = Holder("bo@elsewhere (pid 1)", "2026-01-01T00:00:00Z", "apply other.json")

Scene = Callable[["Stage"], Awaitable[None]]


@dataclass
class Watcher:
    """Notes steps beside the changes, and does something at one of them."""

    log: list[str]
    on_step: Callable[[Step, int], None] = lambda step, wave: None
    on_show: Callable[[WaveProgress], None] = lambda progress: None
    said: list[str] = field(default_factory=list)

    def step(self, step: Step, wave: int) -> None:
        self.log.append(f"[{step.value} {wave}]")
        self.on_step(step, wave)

    def show(self, progress: WaveProgress) -> None:
        self.on_show(progress)

    def saved(self, rollback_file: Path) -> None:
        self.log.append("saved")

    def waits_for(self, holder: Holder) -> None:
        self.said.append(f"waits for {holder}")

    def says(self, text: str) -> None:
        self.said.append(text)


class Stage:
    """Three brokers. Every move finishes when it is looked at, unless a test delays it."""

    def __init__(self, brokers: ScriptedCluster, cluster: Cluster, folder: Path) -> None:
        self.brokers = brokers
        self.cluster = cluster
        self.moves = ScriptedMoves(brokers, {T0: (0, 1), T1: (0, 1), U0: (0, 1)})
        self.lock = ScriptedLock(brokers)
        self.log = self.moves.log
        self.watcher = Watcher(self.log, on_show=lambda _: self.moves.finish())
        self.settings = WaveSettings(
            "sha256:1", "apply plan.json", folder / "journal", folder / "back.json",
            throttle=ThrottleRange.of(80_000), lock_timeout_s=1.0,
        )  # fmt: skip

    async def execute(self, *waves: Wave, **changed: Any) -> WavesResult:
        return await execute_waves(
            self.cluster, waves or (FIRST, SECOND), replace(self.settings, **changed), self.watcher
        )

    def answer_once(self, key: ApiKey, answer: Callable[[Any], Any]) -> None:
        """Answer the next request of one kind like this, and later ones as usual."""
        for broker in self.brokers.brokers:
            as_ever = broker.answers[key]

            def once(request: Any, as_ever: Callable[[Any], Any] = as_ever) -> Any:
                for broker in self.brokers.brokers:
                    broker.answers[key] = as_ever
                return answer(request)

            broker.answers[key] = once

    def journal(self) -> list[str]:
        return [event["event"] for event in read_journal(self.settings.journal).events]


def play(scene: Scene, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wave_execution, "GATE_PATIENCE_S", 0.0)
    monkeypatch.setattr(wave_execution, "POLL_MIN_S", 0.01)
    monkeypatch.setattr(wave_standings, "PAUSE_S", 0.01)

    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(3) as brokers:
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
            async with Cluster(target, complain=pytest.fail, timeout_s=20) as cluster:
                await scene(Stage(brokers, cluster, tmp_path))

    asyncio.run(playing())


@staged(play)
async def test_each_wave_is_throttled_before_it_starts_and_unthrottled_before_the_next(stage: Stage, /) -> None:
    result = await stage.execute()
    assert (result.outcome, result.done, result.moving, result.left) == (Outcome.DONE, 2, (), ())
    brokers = [f"broker {broker}" for broker in (0, 1, 2)]
    wave = [
        "throttle topic t", *(f"throttle {broker}" for broker in brokers), "[throttled {0}]", "start t-{1}",
        "[started {0}]", "[copied {0}]",
        *(f"clear {broker}" for broker in brokers), "clear topic t", "[wave_done {0}]",
    ]  # fmt: skip
    begun = ["[locked 0]", "saved", "[saved 0]", "[cleared 0]"]
    waves = [line.format(n, n - 1) for n in (1, 2) for line in ["[wave_begun {0}]", *wave]]
    assert stage.log == [*begun, *waves, "[ended 2]"]
    assert stage.journal() == ["journal", "begun", *["wave", "throttle", "moving", "wave_done"] * 2, "done"]
    assert stage.lock.members == {}


@staged(play)
async def test_journal_and_rollback_file_are_on_the_disk_before_the_first_change(
    stage: Stage, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes their names in the folder: a file without its name is as good as none."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        stage.log.append("synced folder" if name.is_dir() else f"synced {name.name}")

    monkeypatch.setattr(os, "fsync", fsync)
    assert (await stage.execute()).outcome is Outcome.DONE
    change = next(n for n, line in enumerate(stage.log) if line.startswith(("throttle", "clear", "start")))
    assert [line for line in stage.log[:change] if line.startswith("synced")][:5] == [
        "synced journal", "synced folder", "synced back.json", "synced folder", "synced journal",
    ]  # fmt: skip


@pytest.mark.parametrize("is_carried_out", [True, False])
@staged(play)
async def test_a_lost_answer_to_the_start_is_looked_after(stage: Stage, /, is_carried_out: bool) -> None:
    def lost(request: Any) -> Any:
        if is_carried_out:
            stage.moves._reassign(request)
        return HANG_UP

    stage.answer_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lost)
    result = await stage.execute(FIRST)
    assert (result.outcome, result.done) == (Outcome.DONE, 1)
    assert "no answer to the start of wave 1" in stage.watcher.said[0]
    assert stage.log.count("start t-0") == 1, "what is carried out is not asked for twice"
    assert stage.journal()[-3:] == ["moving", "wave_done", "done"]
    assert stage.journal().count("moving") == 1
    assert stage.moves.throttled() == []


@staged(play)
async def test_a_throttle_that_somebody_clears_before_the_start_is_set_again(stage: Stage, /) -> None:
    def cleared(request: Any) -> Any:
        for settings in stage.moves.settings.values():
            settings.clear()
        return stage.moves._reassign(request)

    stage.answer_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, cleared)
    throttled: list[list[str]] = []

    def show(_: WaveProgress) -> None:
        throttled.append(stage.moves.throttled())
        stage.moves.finish()

    stage.watcher.on_show = show
    assert (await stage.execute(FIRST)).outcome is Outcome.DONE
    assert throttled[0] == ["topic t", "broker 0", "broker 1", "broker 2"]
    assert stage.moves.throttled() == []


@staged(play)
async def test_what_the_cluster_refuses_stops_before_the_next_wave(stage: Stage, /) -> None:
    stage.moves.refuses[T0] = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    result = await stage.execute()
    assert (result.outcome, result.wave) == (Outcome.STOPPED, 1)
    assert "INVALID_REPLICA_ASSIGNMENT" in (result.reason or "")
    assert "start t-1" not in stage.log
    assert (stage.moves.throttled(), stage.lock.members) == ([], {})


@staged(play)
async def test_an_error_of_the_whole_leaves_no_throttle_and_no_lock(stage: Stage, /) -> None:
    stage.moves.refuses_all = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(Refused):
        await stage.execute()
    assert (stage.moves.throttled(), stage.lock.members) == ([], {})
    assert stage.journal()[-1] == "stopped"


@staged(play)
async def test_the_gate_stops_before_the_next_wave(stage: Stage, /) -> None:
    """Each problem appears when the first wave is done."""
    troubles: Sequence[tuple[str, Callable[[], object], Callable[[], object]]] = (
        (
            "the ISR has shrunk for u-0",
            lambda: stage.moves.lose_in_sync(U0, (0,)), lambda: stage.moves.lose_in_sync(U0, (0, 1)),
        ),
        (
            "dead target: broker 2 should receive replicas and cannot be reached",
            lambda: stage.brokers.brokers.pop(), lambda: stage.brokers.brokers.append(gone),
        ),
        (
            "no leader to copy from: t-1",
            lambda: stage.brokers.leaders.update(t=[0, -1]), lambda: stage.brokers.leaders.update(t=[0, 0]),
        ),
    )  # fmt: skip
    gone = stage.brokers.brokers[-1]
    for reason, trouble, repair in troubles:
        stage.moves.put(T0, (0, 1))
        stage.watcher.on_step = lambda step, wave, trouble=trouble: (  # type: ignore[misc]
            trouble() if (step, wave) == (Step.WAVE_DONE, 1) else None
        )
        result = await stage.execute()
        assert (result.outcome, result.reason, result.done) == (Outcome.STOPPED, reason, 1)
        repair()
        assert stage.moves.throttled() == []
    assert "start t-1" not in stage.log


@pytest.mark.parametrize(
    ("frozen", "reason"),
    [
        (2, "hung target: broker 2 should receive replicas and cannot answer: is the process frozen?"),
        (1, "t-0 would wait for hung broker 1, which keeps its replica"),
    ],
)
@staged(play)
async def test_the_gate_stops_at_a_frozen_broker_that_is_still_registered(
    stage: Stage, /, monkeypatch: pytest.MonkeyPatch, frozen: int, reason: str
) -> None:
    monkeypatch.setattr(hung, "_AFTER_S", 0.1)
    stage.brokers.replicas[T0.topic, T0.partition] = [0, 1]
    away = (WaveMove(PartitionMove(T0, (1, 2)), (0, 1), SIZE),)

    def step(step: Step, wave: int) -> None:
        if step is Step.CLEARED:
            stage.brokers.brokers[frozen].is_frozen = True

    stage.watcher.on_step = step
    result = await stage.execute(away)
    assert (result.outcome, result.reason, result.done) == (Outcome.STOPPED, reason, 0)
    assert not [line for line in stage.log if line.startswith("start")]


@staged(play)
async def test_a_gate_that_waits_says_why_once(stage: Stage, /, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wave_execution, "GATE_PATIENCE_S", 20.0)

    def step(one: Step, wave: int) -> None:
        if (one, wave) == (Step.WAVE_DONE, 1):
            stage.moves.lose_in_sync(U0, (0,))
            # Several looks later all is well again.
            asyncio.get_running_loop().call_later(0.1, stage.moves.lose_in_sync, U0, (0, 1))

    stage.watcher.on_step = step
    assert (await stage.execute()).outcome is Outcome.DONE
    assert stage.watcher.said == ["wave 2 waits, for at most 20 s: the ISR has shrunk for u-0"]


@staged(play)
async def test_why_a_wave_waits_is_said_again_after_its_throttle_was_changed(stage: Stage, /) -> None:
    control, waits = WaveControl(), "wave 1: t-0 waits for dead broker 2"
    gone: list[ScriptedBroker] = []

    def show(_: WaveProgress) -> None:
        if not gone:
            gone.append(stage.brokers.brokers.pop())
        elif stage.watcher.said == [waits]:
            control.set_throttle(ThrottleRange.of(40_000))
        elif stage.watcher.said[-1:] == [waits]:
            stage.brokers.brokers += gone
            stage.moves.finish()

    stage.watcher.on_show = show
    result = await execute_waves(stage.cluster, (FIRST,), stage.settings, stage.watcher, control)
    assert result.outcome is Outcome.DONE
    assert stage.watcher.said == [waits, "throttle 80.0 kB/s → 40.0 kB/s: you asked for it", waits]


@staged(play)
async def test_a_throttle_that_somebody_asks_for_holds_at_once_and_in_the_waves_that_follow(stage: Stage, /) -> None:
    rates: list[tuple[int, int | None]] = []
    control = WaveControl()

    def show(progress: WaveProgress) -> None:
        rates.append((progress.wave, progress.throttle))
        if len(rates) == 1:
            control.set_throttle(ThrottleRange.of(40_000))
            return
        follower_rates = {
            settings[FOLLOWER_RATE] for (kind, _), settings in stage.moves.settings.items() if kind == BROKER
        }
        assert follower_rates == {"40000"}
        stage.moves.finish()

    stage.watcher.on_show = show
    result = await execute_waves(stage.cluster, (FIRST, SECOND), stage.settings, stage.watcher, control)
    assert result.outcome is Outcome.DONE
    assert rates[0] == (1, 80_000)
    assert {rate for _, rate in rates[1:]} == {40_000}
    assert {wave for wave, _ in rates} == {1, 2}
    assert stage.watcher.said == ["throttle 80.0 kB/s → 40.0 kB/s: you asked for it"]
    assert stage.moves.throttled() == []


@staged(play)
async def test_what_was_wrong_at_the_start_closes_no_gate(stage: Stage, /) -> None:
    stage.moves.lose_in_sync(U0, (0,))
    assert (await stage.execute()).outcome is Outcome.DONE


@staged(play)
async def test_the_throttle_follows_the_isrs(stage: Stage, /, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wave_execution, "LOOK_AROUND_S", 0.0)
    rates: list[int | None] = []

    def show(progress: WaveProgress) -> None:
        rates.append(progress.throttle)
        if len(rates) == 1:
            stage.moves.lose_in_sync(U0, (0,))
        elif len(rates) == 3:
            stage.moves.lose_in_sync(U0, (0, 1))
        elif len(rates) == 7:
            follower_rates = {
                settings[FOLLOWER_RATE] for (kind, _), settings in stage.moves.settings.items() if kind == BROKER
            }
            assert follower_rates == {str(progress.throttle)}
            stage.moves.finish()

    stage.watcher.on_show = show
    result = await stage.execute(FIRST, throttle=ThrottleRange.of(80_000, 20_000))
    assert result.outcome is Outcome.DONE
    assert rates[:7] == [80_000, 40_000, 20_000, 20_000, 20_000, 30_000, 30_000]
    assert stage.moves.throttled() == []


@staged(play)
async def test_a_dead_broker_slows_nothing_down(stage: Stage, /, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replicas leave the ISR whatever the rate is; a slower copy brings none of them back."""
    monkeypatch.setattr(wave_execution, "LOOK_AROUND_S", 0.0)
    rates: list[int | None] = []

    def show(progress: WaveProgress) -> None:
        rates.append(progress.throttle)
        if len(rates) == 1:
            stage.brokers.brokers = [broker for broker in stage.brokers.brokers if broker.id != 1]
            stage.moves.lose_in_sync(U0, (0,))
        elif len(rates) == 3:
            stage.moves.finish()

    stage.watcher.on_show = show
    await stage.execute(FIRST, throttle=ThrottleRange.of(80_000, 20_000))
    assert rates[:3] == [80_000] * 3
    assert not [line for line in stage.watcher.said if line.startswith("throttle")]


@staged(play)
async def test_what_has_arrived_is_not_held_back_while_the_rest_of_its_wave_copies(
    stage: Stage, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listed follower that lacks a record is held back, in sync or not, and would fall out of the ISR under load."""
    monkeypatch.setattr(wave_execution, "LOOK_AROUND_S", 0.0)
    rates: list[int | None] = []
    lists: list[tuple[str, ...]] = []

    def show(progress: WaveProgress) -> None:
        rates.append(progress.throttle)
        lists.append(read_list(stage.moves.settings[TOPIC, "t"][FOLLOWER_REPLICAS]).ours)
        if len(rates) == 1:
            stage.moves.put(T0, (0, 2))
        elif len(rates) == 2:
            stage.moves.lose_in_sync(T0, (0,))
        elif len(rates) == 3:
            stage.moves.lose_in_sync(T0, (0, 2))
        elif len(rates) == 4:
            stage.moves.finish()

    stage.watcher.on_show = show
    result = await stage.execute((*FIRST, *SECOND), throttle=ThrottleRange.of(80_000, 20_000))
    assert (result.outcome, result.done) == (Outcome.DONE, 2)
    assert lists[0] == ("0:2", "1:2")
    assert lists[3] == ("1:2",)
    assert set(rates) == {80_000}, "the ISR that the throttle itself held down does not halve it"
    assert stage.moves.throttled() == []


@pytest.mark.parametrize("fault", ["refused", "unread"])
@staged(play)
async def test_what_cannot_be_taken_off_the_throttle_now_is_tried_again_and_holds_up_nothing(
    stage: Stage, /, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(wave_execution, "LOOK_AROUND_S", 0.0)
    real = throttles.read_topics
    tries: list[set[str]] = []
    lists: list[tuple[str, ...]] = []

    async def fails_twice(cluster: Cluster, names: set[TopicPartition]) -> None:
        tries.append(set(map(str, names)))
        if len(tries) > 2:
            await throttles.release_partitions(cluster, names)
        elif fault == "refused":
            raise Refused(ErrorCode.POLICY_VIOLATION, None)
        else:
            with monkeypatch.context() as unread:
                unread.setattr(throttles, "read_topics", without_settings)
                await throttles.release_partitions(cluster, names)

    async def without_settings(cluster: Cluster, names: Any) -> Any:
        return {name: replace(topic, configs=None) for name, topic in (await real(cluster, names)).items()}

    monkeypatch.setattr(wave_throttle, "release_partitions", fails_twice)

    def show(_: WaveProgress) -> None:
        lists.append(read_list(stage.moves.settings[TOPIC, "t"][FOLLOWER_REPLICAS]).ours)
        if len(lists) == 1:
            stage.moves.put(T0, (0, 2))
        elif len(lists) == 6:
            stage.moves.finish()

    stage.watcher.on_show = show
    assert (await stage.execute((*FIRST, *SECOND))).outcome is Outcome.DONE
    assert tries[:3] == [{"t-0"}] * 3
    assert (lists[3], lists[5]) == (("0:2", "1:2"), ("1:2",))
    assert stage.watcher.said == [], "the progress is known all the time"


def test_the_throttle_is_halved_while_a_broker_answers_slowly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wave_execution, "LOOK_AROUND_S", 0.0)
    monkeypatch.setattr(wave_throttle, "SAMPLES_MIN", 1)
    rates: list[int | None] = []
    is_slow = True

    async def scene(stage: Stage) -> None:
        async def answer_in_time(request: Any) -> ListOffsetsResponse:
            return ListOffsetsResponse()

        async def answer_late(request: Any) -> ListOffsetsResponse:
            await asyncio.sleep(0.4 if is_slow else 0.0)
            return ListOffsetsResponse()

        for broker in stage.brokers.brokers:
            broker.answers[ApiKey.LIST_OFFSETS] = answer_late if broker.id == 2 else answer_in_time

        def show(progress: WaveProgress) -> None:
            nonlocal is_slow
            rates.append(progress.throttle)
            is_slow = 20_000 not in rates
            if progress.throttle == 30_000:
                stage.moves.finish()

        stage.watcher.on_show = show
        limits = ThrottleRange.of(80_000, 20_000, p99_limit_s=0.25)
        result = await stage.execute(FIRST, throttle=limits)
        assert result.outcome is Outcome.DONE
        assert [rate for rate, after in zip(rates, [*rates[1:], None], strict=True) if rate != after] == [
            80_000, 40_000, 20_000, 30_000,
        ]  # fmt: skip
        assert re.fullmatch(
            r"throttle 80\.0 kB/s → 40\.0 kB/s: broker 2 answers with a p99 of \d+ ms, above 250 ms",
            stage.watcher.said[0],
        )
        asked = [request for broker in stage.brokers.brokers for request in broker.requests(ListOffsetsRequest)]
        assert {topic.name for request in asked for topic in request.topics} == {"t"}
        assert stage.moves.throttled() == []

    play(scene, tmp_path=tmp_path, monkeypatch=monkeypatch)


@staged(play)
async def test_a_stalled_copy_names_the_broker_that_does_not_answer(stage: Stage, /) -> None:
    stage.watcher.on_show = lambda progress: stage.moves.without_dirs.add(2)
    result = await stage.execute(FIRST, stall_s=0.5)
    warning = "the copy has stalled for 0.5 s: t-0 waits for broker 2, which does not answer"
    assert (result.outcome, result.reason) == (Outcome.STOPPED, warning)
    waits = "wave 1: t-0 waits for broker 2, which does not answer"
    assert stage.watcher.said.count(waits) == 1, "told at once, not only when the patience is over"


@staged(play)
async def test_nobody_knows_how_long_it_takes_while_all_that_moves_waits(
    stage: Stage, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = WaveMeter.update
    monkeypatch.setattr(WaveMeter, "update", lambda *said: replace(update(*said), left_s_min=3.0, left_s_max=4.0))
    left: list[float | None] = []

    def show(progress: WaveProgress) -> None:
        left.append(progress.left_s_max)
        stage.moves.without_dirs.add(2)

    stage.watcher.on_show = show
    await stage.execute((*FIRST, *SECOND), stall_s=0.5)
    assert (left[0], {*left[1:]}) == (4.0, {None})
    waits = "wave 1: t-0 waits for broker 2, which does not answer, and so does 1 more of its partitions"
    assert stage.watcher.said.count(waits) == 1


@staged(play)
async def test_a_stalled_copy_without_a_throttle_is_said_to_keep_none(stage: Stage, /) -> None:
    stage.watcher.on_show = lambda progress: None
    result = await stage.execute(stall_s=0.3, throttle=None)
    assert (result.moving, result.left, stage.moves.throttled()) == ((T0,), (), [])


@staged(play)
async def test_a_stalled_copy_stops_and_keeps_its_throttle(stage: Stage, /) -> None:
    stage.watcher.on_show = lambda progress: None
    result = await stage.execute(stall_s=0.3)
    assert (result.outcome, result.moving) == (Outcome.STOPPED, (T0,))
    assert "the copy has stalled" in (result.reason or "")
    assert result.left == ("the throttle of t stays on while it copies",)
    assert stage.moves.throttled() == ["topic t", "broker 0", "broker 1", "broker 2"]
    stage.moves.finish()
    stage.watcher.on_show = lambda progress: stage.moves.finish()
    again = await stage.execute()
    assert (again.outcome, again.done, stage.moves.throttled()) == (Outcome.DONE, 2, [])
    assert stage.log.count("start t-0") == 1


@staged(play)
async def test_a_cluster_that_falls_silent_in_a_wave_is_told_once_and_waited_for(
    stage: Stage, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_ever, looks = wave_execution.read_statuses, itertools.count()

    async def silent_at_first(cluster: Cluster, plan: Sequence[PartitionMove]) -> list[PartitionStatus]:
        if next(looks) < 3:
            raise Unreachable("ZooKeeper does not answer")
        return await as_ever(cluster, plan)

    monkeypatch.setattr(wave_execution, "read_statuses", silent_at_first)
    assert (await stage.execute(stall_s=30)).outcome is Outcome.DONE
    assert stage.watcher.said == [
        "the progress of wave 1 is unknown: ZooKeeper does not answer; klamm waits at most 30 s without news"
    ]


@staged(play)
async def test_what_somebody_else_moves_is_left_alone(stage: Stage, /) -> None:
    stage.moves.put(T1, (1, 2))
    result = await stage.execute()
    assert (result.outcome, result.wave) == (Outcome.STOPPED, 0)
    back = "move it back and go on, or plan again into another file"
    assert result.reason == f"another client has moved t-1, or is moving it: {back}"
    assert not [line for line in stage.log if line.startswith("start")]


@staged(play)
async def test_a_lock_that_somebody_has_taken_stops_before_the_next_wave(stage: Stage, /) -> None:
    def taken(progress: WaveProgress) -> None:
        stage.lock.members = {"thief": SOMEBODY.encode()}
        if stage.lock.has_told_of_the_loss:
            stage.moves.finish()

    stage.watcher.on_show = taken
    result = await stage.execute()
    assert (result.outcome, result.wave, "start t-1" in stage.log) == (Outcome.STOPPED, 2, False)
    assert str(SOMEBODY) in (result.reason or "")
    assert list(stage.lock.members) == ["thief"]


@staged(play)
async def test_what_somebody_cancels_is_not_started_again(stage: Stage, /) -> None:
    stage.watcher.on_show = lambda _: stage.moves.put(T0, (0, 1))
    result = await stage.execute()
    assert (result.outcome, result.reason) == (Outcome.STOPPED, "another client has cancelled t-0")
    assert (stage.log.count("start t-0"), stage.moves.throttled()) == (1, [])


@staged(play)
async def test_what_a_killed_run_has_left_on_other_topics_comes_off(stage: Stage, /) -> None:
    left = throttled_settings("u", {}, {}, Throttle(7000))
    stage.moves.settings[TOPIC, "u"] = dict(left)
    stage.moves.settings[BROKER, "1"] = {FOLLOWER_RATE: "7000"}
    assert (await stage.execute(throttle=None)).outcome is Outcome.DONE
    assert stage.moves.throttled() == []


@staged(play)
async def test_a_passed_deadline_begins_no_wave(stage: Stage, /) -> None:
    result = await stage.execute(deadline_s=0.0)
    assert (result.outcome, result.reason) == (Outcome.DEADLINE, "the deadline has passed")
    assert not [line for line in stage.log if line.startswith(("start", "throttle"))]


@staged(play)
async def test_a_held_lock_is_not_touched(stage: Stage, /) -> None:
    stage.lock.members = {"m0": SOMEBODY.encode()}
    with pytest.raises(LockHeld, match=re.escape(str(SOMEBODY))):
        await stage.execute()
    assert (stage.log, stage.watcher.said) == ([], [f"waits for {SOMEBODY}"])
    assert not stage.settings.journal.exists()
    assert not [request for broker in stage.brokers.brokers for request in broker.requests(JoinGroupRequest)]


@staged(play)
async def test_who_joins_beside_the_leader_does_not_hold_the_lock(stage: Stage, /) -> None:
    """Both saw an empty group. The first to join leads."""

    def empty_then_taken(request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        stage.lock.members = {"m0": SOMEBODY.encode()}
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id=request.groups[0])])

    stage.answer_once(ApiKey.DESCRIBE_GROUPS, empty_then_taken)
    with pytest.raises(LockHeld, match=re.escape(str(SOMEBODY))):
        await stage.execute()
    assert (stage.log, list(stage.lock.members)) == ([], ["m0"])


@staged(play)
async def test_a_session_that_brokers_do_not_allow_is_explained(stage: Stage, /) -> None:
    stage.lock.refuses_joins = ErrorCode.INVALID_SESSION_TIMEOUT
    with pytest.raises(AdminError) as raised:
        await stage.execute()
    assert "group.min.session.timeout.ms" in str(raised.value.hint)
