"""ISR changes through the controller, and through ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from event_loop import in_event_loop, staged
from virtual_time import LoopClock, ManualClock, in_virtual_time, run_virtual

from engine.broker.replication.alter_partition import AlterPartitionManager
from engine.broker.replication.isr_updater import IsrOutcome, IsrUpdate, ZkIsrUpdater
from engine.common.errors import CoordinationError, ErrorCode, KlammError
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, LeaderRecoveryState, TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.runtime.supervisor import Supervisor

ID = bytes(15) + b"\x01"


def update(index: int = 0, *, topic_id: bytes = ID, isr: tuple[int, ...] = (1,)) -> IsrUpdate:
    return IsrUpdate(TopicPartition("t", index), topic_id, LeaderAndIsr(1, 5, isr, partition_epoch=7), 3)


class StandInController:
    """Answers AlterPartition requests as the test says: one answer per request from a list, then success."""

    def __init__(self, *answers: AlterPartitionResponse | Exception, version: int = 3) -> None:
        self.answers = list(answers)
        self.requests: list[AlterPartitionRequest] = []
        self.asked_at_s: list[float] = []
        self.under_way = 0
        self.version = version

    async def ask(self, key: ApiKey, build: Callable[[int], Any], *, version_max: int | None = None) -> tuple[Any, int]:
        assert key is ApiKey.ALTER_PARTITION
        version = self.version if version_max is None else min(self.version, version_max)
        request = build(version)
        self.requests.append(request)
        self.asked_at_s.append(asyncio.get_running_loop().time())
        self.under_way += 1
        assert self.under_way == 1, "one request at a time"
        await asyncio.sleep(0.02)
        self.under_way -= 1
        answer = self.answers.pop(0) if self.answers else success(request, version)
        if isinstance(answer, Exception):
            raise answer
        return answer, version

    @property
    def gaps_ms(self) -> list[float]:
        """The times between the requests; each is under way for 20 ms."""
        return [round((later - earlier) * 1000, 3) for earlier, later in pairwise(self.asked_at_s)]


def success(request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
    """What a controller answers: topics go by name up to version 1, by id since."""
    topics = [
        ResponseTopicData(
            topic_id=topic.topic_id if version > 1 else ZERO_TOPIC_ID,
            topic_name="" if version > 1 else topic.topic_name,
            partitions=[
                ResponsePartitionData(
                    partition_index=p.partition_index,
                    leader_id=1,
                    leader_epoch=p.leader_epoch,
                    isr=p.new_isr or [b.broker_id for b in p.new_isr_with_epochs],
                    partition_epoch=p.partition_epoch + 1,
                )
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionResponse(topics=topics)


def with_manager(
    controller: StandInController,
    test: Callable[[AlterPartitionManager], Any],
    ibp: MetadataVersion = MetadataVersion.IBP_3_9_IV0,
) -> None:
    async def run() -> None:
        manager = AlterPartitionManager(controller, broker_id=1, broker_epoch=lambda: 42, ibp=ibp)
        task = asyncio.create_task(manager.run())
        try:
            await test(manager)
        finally:
            task.cancel()

    run_virtual(run)


async def asked(manager: Any, wanted: IsrUpdate, **options: Any) -> IsrOutcome:
    done: asyncio.Future[IsrOutcome] = asyncio.get_running_loop().create_future()
    manager.submit(wanted, done.set_result, **options)
    assert not done.done(), "never from within the call"
    return await done


class TestAlterPartition:
    def test_changes_of_one_turn_go_together(self) -> None:
        controller = StandInController()

        async def test(manager: AlterPartitionManager) -> None:
            outcomes = await asyncio.gather(*(asked(manager, update(n)) for n in range(3)))
            assert outcomes == [LeaderAndIsr(1, 5, (1,), partition_epoch=8)] * 3

        with_manager(controller, test)
        (request,) = controller.requests
        (topic,) = request.topics
        assert (request.broker_id, request.broker_epoch, topic.topic_id) == (1, 42, ID)
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        assert [b.broker_epoch for b in topic.partitions[0].new_isr_with_epochs] == [-1]

    def test_the_next_request_waits_for_the_answer(self) -> None:
        controller = StandInController()

        async def test(manager: AlterPartitionManager) -> None:
            first = asyncio.create_task(asked(manager, update(0)))
            await asyncio.sleep(0.01)
            second = asyncio.create_task(asked(manager, update(1)))
            again = await asked(manager, update(0))
            assert again is ErrorCode.OPERATION_NOT_ATTEMPTED, "one change per partition at a time"
            await asyncio.gather(first, second)

        with_manager(controller, test)
        assert [[p.partition_index for t in r.topics for p in t.partitions] for r in controller.requests][-1] == [1]

    @pytest.mark.parametrize(
        "failure",
        [
            AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
            AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
            KlammError("no controller"),
            AlterPartitionResponse(),
        ],
        ids=["not the controller", "stale broker epoch", "unreachable", "left out of the answer"],
    )
    def test_it_is_asked_until_it_is_answered(self, failure: AlterPartitionResponse | Exception) -> None:
        controller = StandInController(failure, failure)

        async def test(manager: AlterPartitionManager) -> None:
            assert await asked(manager, update()) == LeaderAndIsr(1, 5, (1,), partition_epoch=8)

        with_manager(controller, test)
        assert controller.gaps_ms == [70, 70]

    def test_a_fault_of_the_program_keeps_no_change_from_being_asked_again(self) -> None:
        controller = StandInController(ValueError("a fault"))

        async def test(manager: AlterPartitionManager) -> None:
            assert await asked(manager, update()) == LeaderAndIsr(1, 5, (1,), partition_epoch=8)

        with_manager(controller, test)
        assert controller.gaps_ms == [70]

    def test_only_what_failed_a_moment_ago_pauses(self) -> None:
        controller = StandInController()

        async def test(manager: AlterPartitionManager) -> None:
            begun = asyncio.get_running_loop().time()
            await asked(manager, update(), is_retry=True)
            assert controller.asked_at_s[0] - begun == pytest.approx(0.05, abs=1e-6)
            await asked(manager, update())
            await asked(manager, update())

        with_manager(controller, test)
        assert controller.gaps_ms == [20, 20]

    @pytest.mark.parametrize(
        ("version", "ibp", "expected"),
        [
            (0, MetadataVersion.IBP_3_9_IV0, 0),
            (1, MetadataVersion.IBP_3_9_IV0, 1),
            (2, MetadataVersion.IBP_3_9_IV0, 1),
            (3, MetadataVersion.IBP_3_9_IV0, 1),
            (2, MetadataVersion.IBP_3_1_IV0, 0),
        ],
    )
    def test_an_unclean_leader_says_that_it_recovers_where_that_is_known(
        self, version: int, ibp: MetadataVersion, expected: int
    ) -> None:
        """KIP-704, version 1 and inter-broker protocol 3.2."""
        controller = StandInController(version=version)
        wanted = update()
        recovering = replace(wanted.leader_and_isr, leader_recovery_state=LeaderRecoveryState.RECOVERING)

        async def test(manager: AlterPartitionManager) -> None:
            assert isinstance(await asked(manager, replace(wanted, leader_and_isr=recovering)), LeaderAndIsr)

        with_manager(controller, test, ibp)
        assert controller.requests[0].topics[0].partitions[0].leader_recovery_state == expected

    @pytest.mark.parametrize("version", [0, 1, 2, 3])
    def test_each_version_carries_the_whole_change(self, version: int) -> None:
        controller = StandInController(version=version)

        async def test(manager: AlterPartitionManager) -> None:
            outcome = await asked(manager, update(isr=(1, 2)))
            assert outcome == LeaderAndIsr(1, 5, (1, 2), partition_epoch=8)

        with_manager(controller, test)
        ((topic,),) = [request.topics for request in controller.requests]
        assert (topic.topic_name, topic.topic_id) == ("t", ID)
        (partition,) = topic.partitions
        assert (partition.leader_epoch, partition.partition_epoch) == (5, 7)
        assert partition.new_isr == ([] if version == 3 else [1, 2])
        assert [b.broker_id for b in partition.new_isr_with_epochs] == ([1, 2] if version == 3 else [])

    def test_a_partitions_error_is_its_outcome(self) -> None:
        async def test(manager: AlterPartitionManager) -> None:
            assert await asked(manager, update()) is ErrorCode.INELIGIBLE_REPLICA
            assert await asked(manager, update(), is_retry=True) == LeaderAndIsr(1, 5, (1,), partition_epoch=8)

        refusal = ResponsePartitionData(partition_index=0, error_code=ErrorCode.INELIGIBLE_REPLICA)
        refused = AlterPartitionResponse(topics=[ResponseTopicData(topic_id=ID, partitions=[refusal])])
        with_manager(StandInController(refused), test)

    def test_a_topic_without_an_id_is_named(self) -> None:
        controller = StandInController()

        async def test(manager: AlterPartitionManager) -> None:
            outcome = await asked(manager, update(topic_id=ZERO_TOPIC_ID))
            assert outcome == LeaderAndIsr(1, 5, (1,), partition_epoch=8)

        with_manager(controller, test)
        assert controller.requests[0].topics[0].topic_name == "t"
        assert controller.requests[0].topics[0].partitions[0].new_isr == [1]


class StandInZnodes:
    """Remembers writes. The version of a state znode is 7."""

    def __init__(self) -> None:
        self.told: list[list[TopicPartition]] = []
        self.failure: CoordinationError | None = None

    async def write_partition_state(self, partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> int | None:
        if self.failure is not None:
            raise self.failure
        return 8 if state.leader_and_isr.partition_epoch == 7 and partition.partition == 0 else None

    async def propagate_isr_changes(self, partitions: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.told.append(list(partitions))


def with_updater(test: Callable[[StandInZnodes, ZkIsrUpdater], Any]) -> None:
    async def run() -> None:
        supervisor = Supervisor("test")
        znodes = StandInZnodes()
        updater = ZkIsrUpdater(znodes.write_partition_state, znodes.propagate_isr_changes, LoopClock(), supervisor)
        updater.start()
        try:
            await test(znodes, updater)
        finally:
            await supervisor.stop()

    run_virtual(run)


class TestZooKeeper:
    @staged(with_updater)
    async def test_a_written_state_has_the_znodes_new_version(
        self, znodes: StandInZnodes, updater: ZkIsrUpdater, /
    ) -> None:
        assert await asked(updater, update()) == LeaderAndIsr(1, 5, (1,), partition_epoch=8)

    @staged(with_updater)
    async def test_another_version_is_refused(self, znodes: StandInZnodes, updater: ZkIsrUpdater, /) -> None:
        assert await asked(updater, update(1)) is ErrorCode.INVALID_UPDATE_VERSION
        await asyncio.sleep(20)
        assert znodes.told == []

    @staged(with_updater)
    async def test_zookeeper_away_is_worth_another_try(self, znodes: StandInZnodes, updater: ZkIsrUpdater, /) -> None:
        znodes.failure = CoordinationError("away")
        assert await asked(updater, update()) is ErrorCode.UNKNOWN_SERVER_ERROR
        znodes.failure = None
        assert await asked(updater, update(), is_retry=True) == LeaderAndIsr(1, 5, (1,), partition_epoch=8)

    @staged(with_updater)
    async def test_the_controller_is_told_when_it_is_quiet(
        self, znodes: StandInZnodes, updater: ZkIsrUpdater, /
    ) -> None:
        await asked(updater, update())
        await asyncio.sleep(4)
        assert znodes.told == []
        await asyncio.sleep(4)
        assert znodes.told == [[TopicPartition("t", 0)]]
        await asyncio.sleep(60)
        assert len(znodes.told) == 1

    @staged(with_updater)
    async def test_a_stream_of_changes_is_told_after_a_minute(
        self, znodes: StandInZnodes, updater: ZkIsrUpdater, /
    ) -> None:
        for _ in range(40):
            await asked(updater, update())
            await asyncio.sleep(2)
        assert len(znodes.told) == 1

    @staged(with_updater)
    async def test_only_a_retry_waits_a_moment(self, znodes: StandInZnodes, updater: ZkIsrUpdater, /) -> None:
        for is_retry, pause_s in ((False, 0), (True, 0.05)):
            begun = asyncio.get_running_loop().time()
            await asked(updater, update(), is_retry=is_retry)
            assert asyncio.get_running_loop().time() - begun == pytest.approx(pause_s, abs=1e-6)

    @in_virtual_time
    async def test_how_long_is_quiet_and_how_late_is_late(self) -> None:
        """Longer than 5 s without a change, or longer than a minute since the last notification."""
        supervisor, znodes, clock = Supervisor("test"), StandInZnodes(), ManualClock()
        updater = ZkIsrUpdater(znodes.write_partition_state, znodes.propagate_isr_changes, clock, supervisor)

        async def is_told_after(ms: int) -> bool:
            clock.advance(ms)
            await updater.tell_if_due()
            is_told = bool(znodes.told)
            znodes.told.clear()
            return is_told

        await asked(updater, update())
        assert [await is_told_after(5000), await is_told_after(1), await is_told_after(100_000)] == [
            False,
            True,
            False,
        ]
        for _ in range(3):
            await asked(updater, update())
            assert await is_told_after(1), "the last one was a minute ago"
            for _ in range(20):
                await asked(updater, update())
                assert not await is_told_after(3000)
        await supervisor.stop()

    @staged(with_updater)
    async def test_what_could_not_be_told_is_told_later(self, znodes: StandInZnodes, updater: ZkIsrUpdater, /) -> None:
        await asked(updater, update())
        znodes.failure = CoordinationError("away")
        await asyncio.sleep(12)
        znodes.failure = None
        await asyncio.sleep(3)
        assert znodes.told == [[TopicPartition("t", 0)]]


@in_event_loop
async def test_on_a_real_zookeeper_the_write_is_conditional_and_the_notice_is_there(
    zk_chroot: str, tmp_path: Path
) -> None:
    client = await ZkClient.connect(
        zk_chroot, session_timeout_ms=6000, connection_timeout_ms=15_000, client_name="test"
    )
    zk = KafkaZkClient(client)
    supervisor = Supervisor("test")
    try:
        await zk.cluster.make_persistent_paths()
        partition = TopicPartition("t", 0)
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 5, (1, 2)), 3)
        await client.create("/brokers/topics/t")
        await zk.partitions.create_partition_states({partition: state}, None)
        updater = ZkIsrUpdater(
            zk.partitions.write_partition_state, zk.notifications.propagate_isr_changes, LoopClock(), supervisor
        )
        fresh = IsrUpdate(partition, ZERO_TOPIC_ID, LeaderAndIsr(1, 5, (1,), partition_epoch=0), 3)
        assert await asked(updater, fresh) == LeaderAndIsr(1, 5, (1,), partition_epoch=1)
        assert await asked(updater, fresh) is ErrorCode.INVALID_UPDATE_VERSION
        await zk.notifications.propagate_isr_changes([partition])
        read = (await zk.partitions.get_partition_states([partition]))[partition]
        assert read == LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 5, (1,), partition_epoch=1), 3)
        assert (await zk.notifications.get_isr_change_notifications()).values == (partition,)
    finally:
        await supervisor.stop()
        await zk.close()
