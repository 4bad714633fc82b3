"""Which controller the tools ask over the wire, and what they do when it moves, freezes or dies."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from event_loop import staged
from scripted_brokers import SILENCE, ScriptedCluster
from wire_scenes import created, play

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import (
    AnswerLost,
    NotFound,
    OutcomeUnknown,
    Unreachable,
)
from engine.admin.cluster.target import Naming, resolve_target
from engine.admin.cluster.wire import WireCluster
from engine.admin.reassignment.by_wire import WireReassignments
from engine.admin.topics.by_wire import WireTopicReader, create_topic, read_reassignments
from engine.admin.topics.changes import NewTopic, TopicOutcome
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsResponse
from engine.kafka.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from engine.kafka.protocol.apis.metadata import MetadataRequest


@staged(play)
async def test_a_controller_that_has_moved_is_found_again(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    def moved(request: CreateTopicsRequest) -> CreateTopicsResponse:
        cluster.controller_id = 1
        return created(ErrorCode.NOT_CONTROLLER)(request)

    cluster.brokers[0].answers[ApiKey.CREATE_TOPICS] = moved
    cluster.brokers[1].answers[ApiKey.CREATE_TOPICS] = created()
    change = await create_topic(wire, NewTopic("t", 3, 2), timeout_ms=1000)
    assert (change.result, change.partition_count, change.replication_factor) == (TopicOutcome.CREATED, 3, 2)
    assert len(cluster.brokers[0].requests(CreateTopicsRequest)) == 1


@staged(play)
async def test_a_controller_that_was_waited_for_is_named_as_such(scripted: ScriptedCluster, _: WireCluster, /) -> None:
    first, second = scripted.brokers
    scripted.controller_id, first.is_frozen = 0, True
    naming = Naming(bootstrap_servers=f"{second.host}:{second.port}")
    async with Cluster(resolve_target(naming, {}, Path())) as cluster:
        wire = await cluster.wire()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await create_topic(wire, NewTopic("t", 1, 1), timeout_ms=500)
        assert cluster.kept_waiting_longest() == f"{first.host}:{first.port}, the controller"


@pytest.mark.parametrize("is_frozen", [True, False], ids=["stands still", "dead"])
@staged(play)
async def test_what_changes_nothing_is_asked_of_the_next_controller(
    cluster: ScriptedCluster, wire: WireCluster, /, is_frozen: bool
) -> None:
    first, second = cluster.brokers
    second.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: ListPartitionReassignmentsResponse()
    tell = second.answers[ApiKey.METADATA]

    def replaced(request: Any) -> Any:
        """Answer as before, and make the other broker the controller from then on."""
        answer = SILENCE if isinstance(request, ListPartitionReassignmentsRequest) else tell(request)
        cluster.controller_id = 1
        return answer

    first.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = replaced
    await wire.nodes()
    if not is_frozen:
        await first.stop()
        second.answers[ApiKey.METADATA] = replaced
    assert await read_reassignments(wire, limit_s=50) == {}
    assert len(second.requests(ListPartitionReassignmentsRequest)) == 1


@staged(play)
async def test_a_change_waits_for_the_controller_after_one_that_has_died(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    first, second = cluster.brokers
    for broker in cluster.brokers:
        broker.answers[ApiKey.CREATE_TOPICS] = created()
    await wire.nodes()
    await first.stop()
    while wire.has_connection(0):
        await asyncio.sleep(0.01)
    wire.operation_s = 0.2
    with pytest.raises(Unreachable, match=r"cannot connect") as caught:
        await create_topic(wire, NewTopic("t", 1, 1), timeout_ms=1000)
    assert (caught.value.where, "another is elected" in str(caught.value.hint)) == ("broker 0, the controller", True)
    tell = second.answers[ApiKey.METADATA]

    def replaced(request: Any) -> Any:
        answer = tell(request)
        cluster.controller_id = 1
        return answer

    second.answers[ApiKey.METADATA] = replaced
    wire.operation_s = 60
    change = await create_topic(wire, NewTopic("t", 1, 1), timeout_ms=1000)
    assert (change.result, len(second.requests(CreateTopicsRequest))) == (TopicOutcome.CREATED, 1)


@staged(play)
async def test_brokers_that_are_silent_are_not_taken_for_a_cluster_without_a_controller(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    for broker in cluster.brokers:
        broker.is_frozen = True
    with pytest.raises(Unreachable, match=r"no answer within 0.3 s") as caught:
        await read_reassignments(wire, limit_s=0.3)
    where, hint = str(caught.value.where), str(caught.value.hint)
    assert (f"{cluster.brokers[0].host}:{cluster.brokers[0].port}" in where, "elected" in hint) == (True, False)


@staged(play)
async def test_a_controller_that_stands_still_holds_up_nobody_for_long(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    cluster.brokers[0].answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: SILENCE
    with pytest.raises(Unreachable, match=r"no answer within 0.3 s") as caught:
        await read_reassignments(wire, limit_s=0.3)
    assert (caught.value.where, wire.silent) == ("broker 0, the controller", {0: "no answer within 0.3 s"})
    cluster.leaders = {"t": [1]}
    for broker in cluster.brokers:
        broker.answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: DescribeConfigsResponse()
    wire.operation_s = 1.0
    complaints: list[str] = []
    (topic,) = await WireTopicReader(wire, on_unknown=complaints.append).topics(["t"])
    assert (topic.partitions[0].leader, complaints) == (
        1, ["reassignments are not known: no answer within 0.2 s: broker 0, the controller"],
    )  # fmt: skip


@staged(play)
async def test_who_only_reads_is_told_soon_that_the_controller_is_silent(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    """Nobody else knows what is under way. A command that has begun a change waits for the next controller."""
    first, second = cluster.brokers

    async def hang(_: object) -> None:
        # A broker answers the requests of one connection in order, so nothing more comes over it.
        await asyncio.Event().wait()

    first.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = hang
    second.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: ListPartitionReassignmentsResponse()
    wire.operation_s = 1.0
    reader = WireReassignments(wire, timeout_ms=800)
    with pytest.raises(Unreachable, match=r"no answer within 0.4 s") as caught:
        await reader.running()
    assert caught.value.where == "broker 0, the controller"
    wire.operation_s = 60.0
    wire.change_count = 1
    asking = asyncio.create_task(reader.running())
    while len(first.requests(ListPartitionReassignmentsRequest)) < 2:
        await asyncio.sleep(0.01)
    cluster.controller_id = 1
    assert (await asking).names == set()


@staged(play)
async def test_a_check_that_changes_nothing_is_not_waited_for_as_long_as_a_change(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    first, _ = cluster.brokers
    first.answers[ApiKey.CREATE_TOPICS] = lambda _: SILENCE
    wire.operation_s = 1.0
    topic = NewTopic("t", 3, 2)
    with pytest.raises(Unreachable, match=r"no answer to CreateTopics within 0.4 s$") as caught:
        await create_topic(wire, topic, timeout_ms=800, validate_only=True)
    assert (str(caught.value.where), wire.change_count) == (f"{first.host}:{first.port}", 0)
    with pytest.raises(OutcomeUnknown, match=r"within 0.9 s; the request may still take effect"):
        await create_topic(wire, topic, timeout_ms=800)


@staged(play)
async def test_a_dry_run_does_not_wait_until_a_silent_controller_is_replaced(
    cluster: ScriptedCluster, _: WireCluster, /
) -> None:
    first, second = cluster.brokers
    second.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: ListPartitionReassignmentsResponse()
    first.is_frozen = True
    wire = WireCluster(cluster.bootstrap[1:], request_timeout_s=1.0, is_dry_run=True)
    try:
        for ask in (wire.reachable_controller_id, lambda: read_reassignments(wire)):
            with pytest.raises(Unreachable, match=r"within 0.4 s$") as caught:
                await ask()
            assert str(caught.value.where) == "broker 0, the controller"
        # There is no answer of a dead one to wait for: the next one is elected, and asked.
        await first.stop()
        cluster.controller_id = 1
        assert await read_reassignments(wire) == {}
    finally:
        await wire.close()


def test_an_error_that_comes_when_the_controller_is_given_up_makes_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.admin.cluster.wire.GREETING_PATIENCE_S", 0.3)
    noise: list[str] = []

    async def scene(cluster: ScriptedCluster, wire: WireCluster) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context["message"]))
        await wire.controller_id()
        is_over = asyncio.Event()

        async def lose_the_answer(*_: object, **__: object) -> None:
            await is_over.wait()
            raise AnswerLost("closed by this side")

        async def give_up(*_: object, **__: object) -> None:
            is_over.set()
            await asyncio.sleep(0.05)
            raise NotFound("nobody is there")

        monkeypatch.setattr(wire, "call_broker", lose_the_answer)
        monkeypatch.setattr(wire, "metadata", give_up)
        with pytest.raises(NotFound, match="nobody is there"):
            await wire._unless_replaced(0, ListPartitionReassignmentsRequest(), is_patient=False)
        gc.collect()

    play(scene)
    assert not [line for line in noise if "never retrieved" in line]


@staged(play)
async def test_a_controller_that_is_gone_keeps_no_topic_from_being_described(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    cluster.leaders = {"t": [0]}
    cluster.controller_id = 1
    cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: DescribeConfigsResponse()
    await wire.nodes()
    await cluster.brokers[1].stop()
    complaints: list[str] = []
    reader = WireTopicReader(wire, on_unknown=complaints.append)
    (topic,) = await reader.topics(["t"])
    assert (topic.partitions[0].leader, complaints[0][:28]) == (0, "reassignments are not known:")
    assert wire.lacks_moves
    cluster.controller_id = 0
    cluster.brokers[0].answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: ListPartitionReassignmentsResponse()
    await reader.topics(["t"])
    assert not wire.lacks_moves


@staged(play)
async def test_without_a_controller_the_tools_wait_for_one(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    cluster.controller_id = -1
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await wire.controller_id()
    cluster.controller_id = 1
    assert await wire.controller_id() == 1


@staged(play)
async def test_on_kraft_a_slow_broker_that_passes_a_change_on_is_not_asked_twice(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    """On KRaft every answer names some broker as the controller: a different one does not mean a new controller."""
    named = iter(range(1, 1_000_000))
    for broker in cluster.brokers:
        broker.answers[ApiKey.DESCRIBE_QUORUM] = pytest.fail
        broker.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: SILENCE
        tell = broker.answers[ApiKey.METADATA]

        def name_another(request: MetadataRequest, tell: Callable[[Any], Any] = tell) -> Any:
            cluster.controller_id = next(named) % 2
            return tell(request)

        broker.answers[ApiKey.METADATA] = name_another
    first = await wire.controller_id()
    with pytest.raises(Unreachable, match="no answer within"):
        await wire.ask_controller(ListPartitionReassignmentsRequest(), lambda _: [], limit_s=1.8)
    asked = [broker.id for broker in cluster.brokers for _ in broker.requests(ListPartitionReassignmentsRequest)]
    assert asked == [first]
    assert next(named) > 2, "another one was named meanwhile"


@pytest.mark.parametrize("is_kraft", [True, False])
@staged(play)
async def test_whoever_is_named_once_stays_the_controller_on_kraft(
    cluster: ScriptedCluster, wire: WireCluster, /, is_kraft: bool
) -> None:
    for broker in cluster.brokers:
        if is_kraft:
            broker.answers[ApiKey.DESCRIBE_QUORUM] = pytest.fail
    assert (await wire.metadata([])).controller_id == 0
    cluster.controller_id = 1
    assert (await wire.metadata([])).controller_id == (0 if is_kraft else 1)
    assert await wire.is_kraft() == is_kraft
