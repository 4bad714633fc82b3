"""LeaderAndIsr and StopReplica on one broker: every rule for valid senders, and the lines of state-change.log."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from event_loop import staged
from replicated_brokers import TOPIC_ID, TP, World, world
from virtual_time import run_virtual

from engine.broker.replication import leader_and_isr_change, replica_manager
from engine.broker.replication.leader_and_isr_change import become_leader_or_follower
from engine.broker.replication.replica_manager import ReplicaManager
from engine.broker.replication.settings import ReplicationSettings
from engine.broker.replication.stop_replica_change import STOPPED_AT_ONCE_MAX, stop_replicas
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from engine.kafka.protocol.apis.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from engine.runtime import turns
from engine.runtime.discards import Discards
from engine.runtime.turns import TURNS_BETWEEN_FREEZES

OTHER_ID = bytes(range(16, 32))


def state(leader: int = 1, leader_epoch: int = 0, **fields: Any) -> LeaderAndIsrPartitionState:
    replicas = fields.pop("replicas", [1, 2])
    return LeaderAndIsrPartitionState(
        partition_index=fields.pop("index", 0),
        controller_epoch=1,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=fields.pop("isr", replicas),
        partition_epoch=fields.pop("partition_epoch", leader_epoch),
        replicas=replicas,
        **fields,
    )


def request(
    *states: LeaderAndIsrPartitionState, topic_id: bytes = TOPIC_ID, controller_epoch: int = 1
) -> LeaderAndIsrRequest:
    topic = LeaderAndIsrTopicState(topic_name=TP.topic, topic_id=topic_id, partition_states=list(states))
    return LeaderAndIsrRequest(controller_id=9, controller_epoch=controller_epoch, topic_states=[topic])


async def lisr(manager: ReplicaManager, wanted: LeaderAndIsrRequest) -> tuple[int, list[int]]:
    """Send LeaderAndIsr; return the answer's error and the partitions' errors."""
    response = await become_leader_or_follower(manager, wanted, correlation_id=7, api_version=7)
    return response.error_code, [p.error_code for t in response.topics for p in t.partition_errors]


def in_world(
    test: Callable[[World, ReplicaManager], Coroutine[Any, Any, None]], *, tmp_path: Path, **options: Any
) -> None:
    """Run a test on broker 1; broker 2 is also alive."""

    async def run() -> None:
        async with world(tmp_path, 1, 2, **options) as w:
            manager = w.brokers[1].replica_manager
            manager.update_metadata(w.update_metadata(), correlation_id=1)
            await test(w, manager)

    run_virtual(run)


def nobody_hears(led: Any, followed: Any) -> None:
    """A listener to new roles where none may be taken."""
    assert (list(led), list(followed)) == ([], [])


class TestLeaderAndIsr:
    @staged(in_world)
    async def test_a_newer_leader_epoch_is_applied(self, w: World, manager: ReplicaManager, /) -> None:
        assert await lisr(manager, request(state(1, 0, is_new=True))) == (0, [0])
        assert manager.partition(*TP).is_leader
        assert await lisr(manager, request(state(2, 1))) == (0, [0])
        assert not manager.partition(*TP).is_leader
        assert manager.partition(*TP).leader_id == 2
        assert manager.fetchers.fetcher_of(TP) is not None
        assert await lisr(manager, request(state(1, 2))) == (0, [0])
        assert manager.fetchers.fetcher_of(TP) is None
        assert not manager.fetchers.fetchers, "a fetcher without partitions ends"

    @pytest.mark.parametrize("leader_epoch", [4, 3], ids=["equal", "older"])
    @staged(in_world)
    async def test_an_old_leader_epoch_is_a_stale_controllers(
        self, w: World, manager: ReplicaManager, /, leader_epoch: int
    ) -> None:
        await lisr(manager, request(state(1, 4)))
        assert await lisr(manager, request(state(2, leader_epoch))) == (0, [ErrorCode.STALE_CONTROLLER_EPOCH])
        assert manager.partition(*TP).is_leader

    @staged(in_world)
    async def test_an_old_controller_is_refused_whole(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(1, 0), controller_epoch=5))
        refused = await lisr(manager, request(state(2, 1), controller_epoch=4))
        assert refused == (ErrorCode.STALE_CONTROLLER_EPOCH, [ErrorCode.STALE_CONTROLLER_EPOCH])
        assert manager.partition(*TP).is_leader
        assert manager.controller_epoch == 5

    @staged(in_world)
    async def test_another_topic_id_is_another_topic(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(1, 0)))
        assert await lisr(manager, request(state(1, 1), topic_id=OTHER_ID)) == (
            0,
            [ErrorCode.INCONSISTENT_TOPIC_ID],
        )
        assert manager.partition(*TP).leader_epoch == 0

    @staged(in_world)
    async def test_the_same_epoch_may_bring_a_topic_id(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(1, 0), topic_id=ZERO_TOPIC_ID))
        assert manager.partition(*TP).topic_id == ZERO_TOPIC_ID
        assert await lisr(manager, request(state(1, 0))) == (0, [0])
        assert manager.partition(*TP).topic_id == TOPIC_ID
        assert await lisr(manager, request(state(1, 0))) == (0, [ErrorCode.STALE_CONTROLLER_EPOCH])

    @staged(in_world)
    async def test_no_replica_of_it(self, w: World, manager: ReplicaManager, /) -> None:
        assert await lisr(manager, request(state(2, 0, replicas=[2, 3]))) == (
            0,
            [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        )
        assert TP not in manager.partitions
        assert w.brokers[1].log_manager.get(TP) is None

    @staged(in_world)
    async def test_a_dead_leader_cannot_be_followed_but_the_log_is_there(
        self, w: World, manager: ReplicaManager, /
    ) -> None:
        assert await lisr(manager, request(state(3, 1, replicas=[1, 3]))) == (0, [0])
        partition = manager.partition(*TP)
        assert partition.log is not None
        assert partition.leader_epoch == -1, "the same state has to be applied when the leader lives"
        assert manager.fetchers.fetcher_of(TP) is None
        w.alive.add(3)
        manager.update_metadata(w.update_metadata(), correlation_id=1)
        assert await lisr(manager, request(state(3, 1, replicas=[1, 3]))) == (0, [0])
        assert manager.fetchers.fetcher_of(TP) is not None

    @staged(in_world)
    async def test_a_leader_whose_successor_is_dead_stops_leading(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(1, 0)))
        await lisr(manager, request(state(-1, 1)))
        with pytest.raises(KafkaError) as refused:
            w.produce(1, b"x")
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    @staged(in_world)
    async def test_what_very_many_new_roles_make_is_left_to_itself(
        self, w: World, manager: ReplicaManager, /, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The garbage collector took hundreds of milliseconds to scan what a broker knows of 200,000 partitions."""
        freezes: list[int] = []
        turns = TURNS_BETWEEN_FREEZES
        monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
        monkeypatch.setattr("engine.runtime.turns.leave_uncollected", lambda: freezes.append(1))
        # Replicas of other brokers: checking each takes a turn, and so does their topic.
        few = [state(index=p, replicas=[2]) for p in range(turns - 2)]
        await lisr(manager, request(*few))
        assert len(freezes) == 0
        await lisr(manager, request(*(state(index=p, replicas=[2]) for p in range(2 * turns - 1))))
        assert len(freezes) == 2

    @staged(in_world)
    async def test_who_listens_hears_that_a_leader_resigned_for_a_dead_one(
        self, w: World, manager: ReplicaManager, /
    ) -> None:
        """Otherwise a coordinator would take its groups for current when it leads again."""
        heard: list[tuple[int, int]] = []
        manager.leadership_listeners.append(lambda led, followed: heard.append((len(led), len(followed))))
        await lisr(manager, request(state(1, 0)))
        await lisr(manager, request(state(-1, 1)))
        assert heard == [(1, 0), (0, 1)]
        await lisr(manager, request(state(-1, 2)))
        await lisr(manager, request(state(1, 3)))
        assert heard == [(1, 0), (0, 1), (1, 0)]

    @staged(in_world)
    async def test_a_leader_epoch_that_cannot_be_noted_fails_the_log_dir(
        self, w: World, manager: ReplicaManager, /
    ) -> None:
        await lisr(manager, request(state(1, 0)))
        w.produce(1, b"x")
        file = w.log(1).dir / "leader-epoch-checkpoint"
        file.unlink()
        file.mkdir()
        manager.leadership_listeners.append(nobody_hears)
        assert await lisr(manager, request(state(1, 1))) == (0, [ErrorCode.KAFKA_STORAGE_ERROR])
        assert [path.name for path in w.brokers[1].failed_dirs] == ["broker-1-0"]
        with pytest.raises(KafkaError) as refused:
            manager.partition(*TP)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    @pytest.mark.parametrize("is_new", [True, False])
    @staged(in_world, dirs_per_broker=2)
    async def test_a_damaged_folder_that_was_left_fails_its_log_dir_alone(
        self, w: World, manager: ReplicaManager, /, is_new: bool
    ) -> None:
        await lisr(manager, request(state(1, 0, index=1, is_new=True)))
        used = w.log(1, TopicPartition(TP.topic, 1)).log_dir
        (other,) = set(manager.log_manager.live_dirs) - {used}
        left_over = other / f"{TP.topic}-0"
        left_over.mkdir()
        (left_over / "leader-epoch-checkpoint").write_text("rubbish\n")
        wanted = request(state(1, 0, is_new=is_new), state(1, 1, index=1))
        error, errors = await lisr(manager, wanted)
        assert (error, errors) == (0, [0 if is_new else ErrorCode.KAFKA_STORAGE_ERROR, 0])
        assert w.brokers[1].failed_dirs == [other]
        assert manager.partition(TP.topic, 1).leader_epoch == 1

    @staged(in_world)
    async def test_an_older_partition_epoch_changes_nothing(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(1, 0, partition_epoch=5, isr=[1])))
        await lisr(manager, request(state(1, 1, partition_epoch=4, isr=[1, 2])))
        assert manager.partition(*TP).isr == (1,)
        assert manager.partition(*TP).leader_epoch == 0

    @staged(in_world)
    async def test_old_versions_are_answered_by_name(self, w: World, manager: ReplicaManager, /) -> None:
        old = LeaderAndIsrRequest(controller_epoch=1, ungrouped_partition_states=[state(1, 0, topic_name=TP.topic)])
        response = await become_leader_or_follower(manager, old, correlation_id=7, api_version=1)
        assert [(p.topic_name, p.partition_index, p.error_code) for p in response.partition_errors] == [(*TP, 0)]
        assert not response.topics

    @pytest.mark.parametrize("version", [4, 7])
    def test_no_object_is_kept_for_a_partition_without_a_replica_here(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
    ) -> None:
        kept: list[int] = []

        def counted(wanted: Any, error: Any, errors: Any, *more: Any) -> Any:
            kept.append(len(errors))
            return response(wanted, error, errors, *more)

        response = leader_and_isr_change._response
        monkeypatch.setattr(leader_and_isr_change, "_response", counted)

        async def test(w: World, manager: ReplicaManager) -> None:
            elsewhere = [state(2, 0, index=index, replicas=[2, 3]) for index in range(5)]
            # Named twice, a partition has one answer: the last, or that for its replica here.
            twice = [state(1, 0, index=3), elsewhere[3], elsewhere[4], state(1, 0, index=4)]
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            wanted = request(*elsewhere[:3], *twice)
            answer = await become_leader_or_follower(manager, wanted, correlation_id=7, api_version=version)
            parts = answer.partition_errors or answer.topics[0].partition_errors
            named = [0, 1, 2, 3, 4] if version == 4 else [0, 1, 2, 3, 3, 4, 4]
            assert [(part.partition_index, part.error_code) for part in parts] == [
                (index, unknown if index < 4 else 0) for index in named
            ]
            assert kept == [2]

        in_world(test, tmp_path=tmp_path)

    @pytest.mark.parametrize("version", [4, 5])
    @staged(in_world)
    async def test_partitions_are_answered_by_topic_since_version_5(
        self, w: World, manager: ReplicaManager, /, version: int
    ) -> None:
        response = await become_leader_or_follower(manager, request(state(1, 0)), correlation_id=7, api_version=version)
        assert [p.topic_name for p in response.partition_errors] == ([TP.topic] if version == 4 else [])
        assert [t.topic_id for t in response.topics] == ([] if version == 4 else [TOPIC_ID])

    @pytest.mark.parametrize(
        ("code", "cause"),
        [(ErrorCode.KAFKA_STORAGE_ERROR, errno.EMFILE), (ErrorCode.INCONSISTENT_TOPIC_ID, None)],
        ids=["no descriptor is left", "another topic's log"],
    )
    @staged(in_world)
    async def test_an_error_that_is_no_disks_takes_no_replica_offline(
        self, w: World, manager: ReplicaManager, /, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, cause: int | None
    ) -> None:
        def failing(*_: Any, **__: Any) -> Any:
            raise KafkaError(code) from (None if cause is None else OSError(cause, "none left"))

        with monkeypatch.context() as patch:
            patch.setattr(manager, "open_log", failing)
            assert await lisr(manager, request(state(1, 0, is_new=True))) == (0, [code])
        assert TP not in manager.partitions
        assert not manager.is_offline(TP)
        assert await lisr(manager, request(state(1, 0, is_new=True))) == (0, [0]), "it may be tried again"

    @staged(in_world)
    async def test_an_unclean_leader_takes_itself_for_recovered(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(1, 0, isr=[1], leader_recovery_state=1)))
        assert manager.partition(*TP).isr_state.recovery == 0

    @staged(in_world)
    async def test_requests_wait_for_each_other_in_order(self, w: World, manager: ReplicaManager, /) -> None:
        many = request(*[state(1, 0, index=n) for n in range(50)])
        answers = await asyncio.gather(
            lisr(manager, many), lisr(manager, request(state(2, 1))), lisr(manager, request(state(1, 2)))
        )
        assert [codes for _, codes in answers] == [[0] * 50, [0], [0]]
        assert manager.partition(*TP).leader_epoch == 2

    @staged(in_world)
    async def test_listeners_hear_of_new_roles(self, w: World, manager: ReplicaManager, /) -> None:
        heard: list[tuple[int, int]] = []
        manager.leadership_listeners.append(lambda led, followed: heard.append((len(led), len(followed))))
        await lisr(manager, request(state(1, 0), state(2, 0, index=1)))
        await lisr(manager, request(state(1, 0)))
        assert heard == [(1, 1)]

    @pytest.mark.parametrize(
        ("before", "after"), [(ZERO_TOPIC_ID, TOPIC_ID), (TOPIC_ID, ZERO_TOPIC_ID)], ids=["upgraded", "downgraded"]
    )
    @staged(in_world)
    async def test_a_follower_fetches_by_the_topic_id_that_the_same_epoch_brings(
        self, w: World, manager: ReplicaManager, /, before: bytes, after: bytes
    ) -> None:
        """A controller that is upgraded gives topics an id, one that is downgraded knows none."""
        await lisr(manager, request(state(2, 0), topic_id=before))
        assert await lisr(manager, request(state(2, 0), topic_id=after)) == (0, [0])
        assert manager.fetchers.remove([TP])[TP].topic_id == after
        assert w.log(1).topic_id == TOPIC_ID, "a log keeps its id"

    @staged(in_world)
    async def test_a_leader_keeps_its_topic_id_whatever_the_same_epoch_brings(
        self, w: World, manager: ReplicaManager, /
    ) -> None:
        await lisr(manager, request(state(1, 0)))
        again = request(state(1, 0), topic_id=ZERO_TOPIC_ID)
        assert await lisr(manager, again) == (0, [ErrorCode.STALE_CONTROLLER_EPOCH])

    @staged(in_world)
    async def test_a_topic_id_that_cannot_be_noted_is_not_taken(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(2, 0), topic_id=ZERO_TOPIC_ID))
        (w.log(1).dir / "partition.metadata").mkdir()
        assert await lisr(manager, request(state(2, 0))) == (0, [ErrorCode.KAFKA_STORAGE_ERROR])
        assert [path.name for path in w.brokers[1].failed_dirs] == ["broker-1-0"]

    @staged(in_world)
    async def test_who_shuts_down_follows_without_fetching(self, w: World, manager: ReplicaManager, /) -> None:
        """Controlled shutdown makes it a follower of everything, one partition after the other."""
        other = TopicPartition(TP.topic, 1)
        await lisr(manager, request(state(1, 0), state(2, 0, index=1)))
        assert manager.fetchers.fetcher_of(other) is not None
        manager.begin_shutdown()
        assert await lisr(manager, request(state(2, 1), state(2, 1, index=1))) == (0, [0, 0])
        for partition in (TP, other):
            assert manager.partition(*partition).leader_id == 2
            assert manager.fetchers.fetcher_of(partition) is None

    @pytest.mark.parametrize(
        ("protocol", "offset"), [(MetadataVersion.IBP_3_9_IV0, 2), (MetadataVersion.IBP_2_6_IV0, 0)], ids=str
    )
    def test_a_follower_goes_on_where_its_log_ends_unless_its_cuts_come_first(
        self, tmp_path: Path, protocol: MetadataVersion, offset: int
    ) -> None:
        """The Fetch answer tells it what to cut since 2.7. Before that it begins at its high watermark."""

        async def test(w: World, manager: ReplicaManager) -> None:
            await lisr(manager, request(state(1, 0)))
            w.produce(1, b"0")
            w.produce(1, b"1")
            assert await lisr(manager, request(state(2, 1))) == (0, [0])
            assert manager.fetchers.remove([TP])[TP].fetch_offset == offset

        in_world(test, tmp_path=tmp_path, settings=ReplicationSettings(0, inter_broker_protocol_version=protocol))

    @pytest.mark.parametrize("leader", [1, 2], ids=["leader", "follower"])
    @staged(in_world)
    async def test_a_replica_whose_log_dir_fails_meanwhile_neither_leads_nor_fetches(
        self, w: World, manager: ReplicaManager, /, monkeypatch: pytest.MonkeyPatch, leader: int
    ) -> None:
        await lisr(manager, request(state(1, 4)))
        w.produce(1, b"0")
        partition, log = manager.partition(*TP), w.log(1)
        log.flush()
        log.truncate_to(0)
        settle = manager.settle_cuts

        async def settle_on_a_failing_disk(logs: Any) -> None:
            await settle(logs)
            manager.handle_log_dir_failure(log.log_dir)

        monkeypatch.setattr(manager, "settle_cuts", settle_on_a_failing_disk)
        manager.leadership_listeners.append(nobody_hears)
        assert await lisr(manager, request(state(leader, 5))) == (0, [ErrorCode.KAFKA_STORAGE_ERROR])
        assert manager.is_offline(TP)
        assert not partition.is_leader
        assert manager.fetchers.fetcher_of(TP) is None

    @pytest.mark.parametrize("is_late", [False, True], ids=["as it is its turn", "before its turn"])
    @pytest.mark.parametrize("leader", [1, 2, 9], ids=["leader", "follower", "dead leader"])
    @staged(in_world, dirs_per_broker=2)
    async def test_no_other_log_is_made_for_a_replica_whose_log_dir_fails_meanwhile(
        self, w: World, manager: ReplicaManager, /, monkeypatch: pytest.MonkeyPatch, leader: int, is_late: bool
    ) -> None:
        """The next start would find two folders of one name, and refuse."""
        monkeypatch.setattr(leader_and_isr_change, "CREATED_AT_ONCE_MAX", 1)
        await lisr(manager, request(state(1, 0, is_new=True)))
        partition, log_manager, failing = manager.partition(*TP), w.brokers[1].log_manager, w.log(1).log_dir
        create_logs = manager.create_logs

        async def create_and_fail(topic_ids: Any) -> None:
            await create_logs(topic_ids)
            if failing in log_manager.live_dirs:
                log_manager.fail_dir(failing, "the test pulled the disk", OSError(5, "I/O error"))
                manager.handle_log_dir_failure(failing)

        monkeypatch.setattr(manager, "create_logs", create_and_fail)
        states = [state(leader, 1, index=index, is_new=True) for index in ((1, 0) if is_late else (0, 1))]
        answer = [0, ErrorCode.KAFKA_STORAGE_ERROR]
        assert await lisr(manager, request(*states)) == (0, answer if is_late else answer[::-1])
        assert log_manager.get(TP) is None and log_manager.get(TopicPartition(TP.topic, 1)) is not None
        assert not (log_manager.live_dirs[0] / f"{TP}").exists()
        await w.until(lambda: partition.log is None, "the replica has ended")

    @pytest.mark.parametrize("fails", [False, True], ids=["", "the disk fails"])
    @pytest.mark.parametrize("leader", [1, 2], ids=["leader", "follower"])
    @staged(in_world)
    async def test_an_earlier_fetchers_cut_is_settled_first(
        self, w: World, manager: ReplicaManager, /, monkeypatch: pytest.MonkeyPatch, leader: int, fails: bool
    ) -> None:
        """A recovery would skip what is written below the old recovery point."""
        await lisr(manager, request(state(1, 4)))
        w.produce(1, b"0")
        w.produce(1, b"1")
        log = w.log(1)
        log.flush()
        log.truncate_to(1)
        assert log.is_unsettled
        made: list[bool] = []
        for name in ("make_leader", "make_follower"):
            change = getattr(leader_and_isr_change, name)
            monkeypatch.setattr(
                leader_and_isr_change,
                name,
                lambda *a, change=change: (made.append(log.is_unsettled), change(*a))[1],
            )
        add = manager.fetchers.add
        monkeypatch.setattr(manager.fetchers, "add", lambda names: (made.append(log.is_unsettled), add(names)))
        if fails:

            async def failing(_logs: Any) -> None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

            monkeypatch.setattr(manager, "settle_cuts", failing)
        error = ErrorCode.KAFKA_STORAGE_ERROR if fails else ErrorCode.NONE
        assert await lisr(manager, request(state(leader, 5))) == (0, [error])
        if fails:
            assert manager.fetchers.fetcher_of(TP) is None
            assert manager.is_offline(TP)
        else:
            assert made
            assert not made[-1], "before the first append"
            assert log.recovery_point == 1


class TestFetchers:
    @staged(in_world)
    async def test_a_leader_that_comes_back_elsewhere_is_fetched_from_there(
        self, w: World, manager: ReplicaManager, /
    ) -> None:
        both = TP, TopicPartition(TP.topic, 1)
        await lisr(manager, request(state(2, 0), state(2, 0, index=1)))
        metadata = w.update_metadata()
        metadata.live_brokers[1].endpoints[0].port = 9093
        manager.update_metadata(metadata, correlation_id=2)
        # The controller names one of them first; the other one's leader is the same broker.
        assert await lisr(manager, request(state(2, 1))) == (0, [0])
        (fetcher,) = manager.fetchers.fetchers
        assert fetcher.leader.node.port == 9093
        assert set(fetcher.partitions) == set(both)
        states = manager.fetchers.remove(both)
        assert [states[partition].leader_epoch for partition in both] == [1, 0]
        assert {state.leader.port for state in states.values()} == {9093}

    @staged(in_world)
    async def test_a_leader_without_our_listener_is_not_fetched_from(
        self, w: World, manager: ReplicaManager, /
    ) -> None:
        metadata = w.update_metadata()
        metadata.live_brokers[1].endpoints[0].listener = "EXTERNAL"
        manager.update_metadata(metadata, correlation_id=2)
        assert await lisr(manager, request(state(2, 0), state(1, 0, index=1))) == (0, [0, 0])
        assert manager.fetchers.fetcher_of(TP) is None
        assert manager.partition(TP.topic, 1).is_leader, "the others go on"

    @staged(in_world)
    async def test_more_fetchers_share_what_one_fetched(self, w: World, manager: ReplicaManager, /) -> None:
        names = [TopicPartition(TP.topic, index) for index in range(8)]
        await lisr(manager, request(*(state(1, 0, index=index) for index in range(8))))
        for name in names:
            w.produce(1, b"x", topic_partition=name)
        await lisr(manager, request(*(state(2, 1, index=index) for index in range(8))))
        (before,) = manager.fetchers.fetchers
        manager.fetchers.resize(3)
        assert len(manager.fetchers.fetchers) == 3
        assert before not in manager.fetchers.fetchers
        fetched = [name for fetcher in manager.fetchers.fetchers for name in fetcher.partitions]
        assert sorted(fetched) == names
        assert {state.fetch_offset for state in manager.fetchers.remove(names).values()} == {1}, "where each was"


def stop(*states: tuple[int, int, bool], controller_epoch: int = 1, topic: str = TP.topic) -> StopReplicaRequest:
    """Return a request of version 3 or later; each state is (partition, leader epoch, delete)."""
    partition_states = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=epoch, delete_partition=delete)
        for index, epoch, delete in states
    ]
    topic_state = StopReplicaTopicState(topic_name=topic, partition_states=partition_states)
    return StopReplicaRequest(controller_id=9, controller_epoch=controller_epoch, topic_states=[topic_state])


async def stopped(manager: ReplicaManager, wanted: StopReplicaRequest) -> tuple[int, list[int]]:
    response = await stop_replicas(manager, wanted, correlation_id=8)
    return response.error_code, [p.error_code for p in response.partition_errors]


class TestStopReplica:
    @pytest.mark.parametrize(
        ("leader_epoch", "error"),
        [
            (3, ErrorCode.FENCED_LEADER_EPOCH),
            (4, ErrorCode.NONE),
            (5, ErrorCode.NONE),
            (-1, ErrorCode.NONE),
            (-2, ErrorCode.NONE),
        ],
        ids=["older", "equal", "newer", "not sent", "topic is deleted"],
    )
    @staged(in_world)
    async def test_which_leader_epochs_may(
        self, w: World, manager: ReplicaManager, /, leader_epoch: int, error: ErrorCode
    ) -> None:
        await lisr(manager, request(state(2, 4)))
        folder = w.log(1).dir
        assert await stopped(manager, stop((0, leader_epoch, True))) == (0, [error])
        is_gone = error is ErrorCode.NONE
        assert (TP not in manager.partitions) == is_gone
        assert (manager.fetchers.fetcher_of(TP) is None) == is_gone
        assert folder.exists() != is_gone

    @staged(in_world)
    async def test_without_deletion_only_the_fetcher_stops(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(2, 4)))
        assert await stopped(manager, stop((0, 4, False))) == (0, [0])
        assert manager.fetchers.fetcher_of(TP) is None
        assert manager.partition(*TP).log is not None
        assert w.log(1).dir.exists()

    @staged(in_world)
    async def test_a_replica_that_a_checkpoint_may_still_name_is_not_deleted_yet(
        self, w: World, manager: ReplicaManager, /, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A topic of the same name would begin with the old one's offsets."""

        async def not_forgotten(_names: Any) -> bool:
            return False

        await lisr(manager, request(state(2, 4)))
        monkeypatch.setattr(manager, "forget_logs", not_forgotten)
        assert not manager.log_manager.offline_dirs
        for _ in range(2):
            assert await stopped(manager, stop((0, 4, True))) == (0, [ErrorCode.KAFKA_STORAGE_ERROR])
        monkeypatch.undo()
        assert await stopped(manager, stop((0, 4, True))) == (0, [ErrorCode.NONE])

    @staged(in_world)
    async def test_the_last_of_several_orders_for_one_replica_counts(
        self, w: World, manager: ReplicaManager, /
    ) -> None:
        await lisr(manager, request(state(2, 4)))
        assert await stopped(manager, stop((0, 4, True), (0, 3, True))) == (0, [ErrorCode.FENCED_LEADER_EPOCH])
        assert TP in manager.partitions
        assert await stopped(manager, stop((0, 3, True), (0, 4, False))) == (0, [ErrorCode.NONE])
        assert manager.log_manager.get(TP) is not None
        assert await stopped(manager, stop((0, 4, True), (0, 4, False))) == (0, [ErrorCode.NONE])
        assert manager.log_manager.get(TP) is not None
        assert await stopped(manager, stop((0, 3, True), (0, 4, True))) == (0, [ErrorCode.NONE])
        assert TP not in manager.partitions

    @staged(in_world)
    async def test_an_old_controller_is_refused_whole(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(2, 4), controller_epoch=5))
        assert await stopped(manager, stop((0, 5, True), controller_epoch=4)) == (
            ErrorCode.STALE_CONTROLLER_EPOCH,
            [],
        )
        assert TP in manager.partitions

    def test_very_many_are_stopped_in_turns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """200,000 used to block everybody twice, for 150 ms each."""
        many = 3 * STOPPED_AT_ONCE_MAX
        monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
        turns, removed = 0, []
        stopped: list[int] = []

        async def test(w: World, manager: ReplicaManager) -> None:
            nonlocal turns
            manager.stop_listeners.append(lambda names: stopped.append(len(names)))
            remove = manager.fetchers.remove

            def noted(partitions: Iterable[TopicPartition]) -> Any:
                names = list(partitions)
                removed.append(len(names))
                return remove(names)

            monkeypatch.setattr(manager.fetchers, "remove", noted)
            states = [StopReplicaPartitionState(partition_index=p, leader_epoch=1) for p in range(many)]
            topic = StopReplicaTopicState(topic_name="t", partition_states=states)
            asked = StopReplicaRequest(controller_id=9, controller_epoch=1, topic_states=[topic])
            stopping = asyncio.ensure_future(stop_replicas(manager, asked, correlation_id=7))
            while not stopping.done():
                turns += 1
                await asyncio.sleep(0)
            assert [error.partition_index for error in (await stopping).partition_errors] == list(range(many))

        in_world(test, tmp_path=tmp_path)
        assert removed == stopped == [STOPPED_AT_ONCE_MAX] * 3
        # Turns to read them, check them, stop them, and answer.
        assert turns >= 4 * many

    @staged(in_world)
    async def test_a_folder_nobody_names_any_more_goes_too(self, w: World, manager: ReplicaManager, /) -> None:
        stray = TopicPartition("stray", 3)
        folder = w.brokers[1].log_manager.get_or_create(stray, is_new=True).dir
        assert await stopped(manager, stop((3, -2, True), topic="stray")) == (0, [0])
        assert not folder.exists()
        assert await stopped(manager, stop((3, -2, True), topic="stray")) == (0, [0])

    @staged(in_world)
    async def test_old_versions(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(2, 4), state(2, 4, index=1)))
        v0 = StopReplicaRequest(
            controller_epoch=1,
            delete_partitions=True,
            ungrouped_partitions=[StopReplicaPartitionV0(topic_name=TP.topic, partition_index=0)],
        )
        v1 = StopReplicaRequest(
            controller_epoch=1,
            delete_partitions=True,
            topics=[StopReplicaTopicV1(name=TP.topic, partition_indexes=[1])],
        )
        assert await stopped(manager, v0) == (0, [0])
        assert await stopped(manager, v1) == (0, [0])
        assert not manager.partitions

    @staged(in_world)
    async def test_a_deleted_topic_may_come_again_with_another_id(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(1, 4)))
        w.produce(1, b"old")
        await stopped(manager, stop((0, -2, True)))
        assert await lisr(manager, request(state(1, 0, is_new=True), topic_id=OTHER_ID)) == (0, [0])
        assert w.log(1).log_end_offset == 0


class TestLogDirFailure:
    @staged(in_world, dirs_per_broker=2)
    async def test_its_partitions_go_offline_and_the_others_stay(self, w: World, manager: ReplicaManager, /) -> None:
        await lisr(manager, request(state(1, 0, is_new=True), state(1, 0, index=1, is_new=True)))
        failing = w.log(1).log_dir
        other = TopicPartition(TP.topic, 1)
        assert w.log(1, other).log_dir != failing
        w.brokers[1].log_manager.fail_dir(failing, "the test pulled the disk", OSError(5, "I/O error"))
        assert w.brokers[1].failed_dirs == [failing]
        manager.handle_log_dir_failure(failing)
        assert len(Discards.of_loop()) == 1, "to free 20,000 logs takes 150 ms"
        with pytest.raises(KafkaError) as offline:
            manager.partition(*TP)
        assert offline.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert manager.offline_count == 1
        w.produce(1, b"x", topic_partition=other)
        again = await lisr(manager, request(state(1, 1), state(1, 1, index=1)))
        assert again == (0, [ErrorCode.KAFKA_STORAGE_ERROR, 0])
        assert await stopped(manager, stop((0, 1, False))) == (0, [ErrorCode.KAFKA_STORAGE_ERROR])

    @staged(in_world)
    async def test_very_many_are_refused_at_once_and_end_in_turns(
        self, w: World, manager: ReplicaManager, /, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For 20,000 it took 110 ms in one piece."""
        monkeypatch.setattr(replica_manager, "ENDED_AT_ONCE", 1)
        monkeypatch.setattr(turns, "HOLD_MS_MAX", 0)
        await lisr(manager, request(*(state(2 if n == 2 else 1, 0, index=n, is_new=True) for n in range(3))))
        names = [TopicPartition(TP.topic, n) for n in range(3)]
        partitions = [manager.partition(*name) for name in names]
        logs = [ref(partition.log) for partition in partitions if partition.log is not None]
        failing = w.log(1).log_dir
        w.brokers[1].log_manager.fail_dir(failing, "the test pulled the disk", OSError(5, "I/O error"))
        manager.handle_log_dir_failure(failing)
        for name in names:
            with pytest.raises(KafkaError) as offline:
                manager.partition(*name)
            assert offline.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not any(partition.is_leader for partition in partitions)
        assert [partition.log is None for partition in partitions] == [True, False, False]
        assert manager.fetchers.fetcher_of(names[2]) is not None
        again = await lisr(manager, request(*(state(1, 1, index=n) for n in range(3))))
        assert again == (0, [ErrorCode.KAFKA_STORAGE_ERROR] * 3)
        await w.until(lambda: not any(partition.log for partition in partitions), "all have ended")
        await w.until(lambda: not any(log() for log in logs), "their files are closed")
        assert manager.fetchers.fetcher_of(names[2]) is None
        assert manager.offline_count == 3

    @staged(in_world, dirs_per_broker=2)
    async def test_a_log_that_may_be_on_the_failed_dir_is_not_made_anew(
        self, w: World, manager: ReplicaManager, /
    ) -> None:
        log_manager = w.brokers[1].log_manager
        log_manager.fail_dir(log_manager.live_dirs[0], "the test pulled the disk", OSError(5, "I/O error"))
        assert await lisr(manager, request(state(1, 3))) == (0, [ErrorCode.KAFKA_STORAGE_ERROR])
        assert await lisr(manager, request(state(1, 0, index=1, is_new=True))) == (0, [0])
        with pytest.raises(KafkaError) as offline:
            manager.partition(*TP)
        assert offline.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@staged(in_world)
async def test_who_is_hosted_elsewhere_is_told_apart_from_who_does_not_exist(
    w: World, manager: ReplicaManager, /
) -> None:
    await w.lead(2, replicas=[2], tell=[2])
    manager.update_metadata(w.update_metadata(), correlation_id=1)
    with pytest.raises(KafkaError) as elsewhere:
        manager.partition(*TP)
    with pytest.raises(KafkaError) as unknown:
        manager.partition("nobody", 0)
    assert elsewhere.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_lines_of_state_change_log_are_kafkas(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Sentences recorded from Apache Kafka 3.9.1, with this test's names and numbers."""

    async def test(w: World, manager: ReplicaManager) -> None:
        with caplog.at_level(5, "state.change.logger"):
            await lisr(manager, request(state(1, 0, is_new=True)))
            await lisr(manager, request(state(2, 1)))
            await lisr(manager, request(state(2, 1)))
            await stopped(manager, stop((0, 2, False)))

    caplog.set_level(logging.CRITICAL)
    in_world(test, tmp_path=tmp_path)
    lines = [r.getMessage().removeprefix("[Broker id=1] ") for r in caplog.records if r.name == "state.change.logger"]
    one = "from controller 9 epoch 1"
    recorded = [
        "Handling LeaderAndIsr request correlationId 7 from controller 9 for 1 partitions",
        "Received LeaderAndIsr request LeaderAndIsrPartitionState(topicName='orders', partitionIndex=0, "
        "controllerEpoch=1, leader=1, leaderEpoch=0, isr=[1, 2], partitionEpoch=0, replicas=[1, 2], addingReplicas=[], "
        f"removingReplicas=[], isNew=true, leaderRecoveryState=0) correlation id 7 {one}",
        f"Handling LeaderAndIsr request correlationId 7 {one} starting the become-leader transition for partition "
        "orders-0",
        f"Stopped fetchers as part of LeaderAndIsr request correlationId 7 {one} as part of the become-leader "
        "transition for 1 partitions",
        "Leader orders-0 with topic id Some(AAECAwQFBgcICQoLDA0ODw) starts at leader epoch 0 from offset 0 with "
        "partition epoch 0, high watermark 0, ISR [1,2], adding replicas [] and removing replicas [] . Previous "
        "leader None and previous leader epoch was -1.",
        f"Completed LeaderAndIsr request correlationId 7 {one} for the become-leader transition for partition orders-0",
        "Follower orders-0 starts at leader epoch 1 from offset 0 with partition epoch 1 and high watermark 0. "
        "Current leader is 2. Previous leader Some(2) and previous leader epoch was 1.",
        f"Stopped fetchers as part of become-follower request {one} with correlation id 7 for 1 partitions",
        f"Completed LeaderAndIsr request correlationId 7 {one} for the become-follower transition for partition "
        "orders-0 with leader 2",
        "Ignoring LeaderAndIsr request from controller 9 with correlation id 7 epoch 1 for partition orders-0 since "
        "its associated leader epoch 1 matches the current leader epoch",
        "Handling StopReplica request correlationId 8 from controller 9 for 1 partitions",
        "Received StopReplica request StopReplicaPartitionState(partitionIndex=0, leaderEpoch=2, "
        f"deletePartition=false) correlation id 8 {one} for partition orders-0",
    ]
    assert [line for line in recorded if line not in lines] == []
    assert sum(line.startswith("Finished LeaderAndIsr request in ") for line in lines) == 3
