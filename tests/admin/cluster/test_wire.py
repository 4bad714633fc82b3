"""Which brokers the tools ask over the wire, and how they handle rare answers."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from event_loop import staged
from scripted_brokers import HANG_UP, SILENCE, ScriptedCluster
from wire_scenes import created, play

from engine.admin.cluster.client_properties import ClientProperties, load_client_properties
from engine.admin.cluster.errors import (
    AnswerLost,
    FailureKind,
    NotFound,
    OutcomeUnknown,
    Refused,
    StillUnderWay,
    Unreachable,
)
from engine.admin.cluster.remedies import GIVE_TIME, Operation
from engine.admin.cluster.wire import WireCluster
from engine.admin.configs.by_wire import describe_clients
from engine.admin.configs.values import EntityType
from engine.admin.topics.by_wire import create_topic, delete_topics
from engine.admin.topics.changes import NewTopic, TopicOutcome
from engine.common.errors import ErrorCode
from engine.kafka.client.broker_client import BrokerClient, LastAnswer
from engine.kafka.client.errors import ConnectFailed, Unchanged
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import CreateTopicsRequest
from engine.kafka.protocol.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from engine.kafka.protocol.apis.describe_client_quotas import DescribeClientQuotasResponse
from engine.kafka.protocol.apis.list_offsets import ListOffsetsRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest


@pytest.mark.parametrize("answer", [SILENCE, HANG_UP], ids=["silence", "hang up"])
@staged(play)
async def test_the_outcome_of_a_change_without_an_answer_is_not_known(
    cluster: ScriptedCluster, wire: WireCluster, /, answer: object
) -> None:
    first = cluster.brokers[0]
    first.answers[ApiKey.CREATE_TOPICS] = lambda _: answer
    with pytest.raises(OutcomeUnknown, match="the request may still take effect") as caught:
        await create_topic(wire, NewTopic("t", 1, 1), timeout_ms=500)
    assert caught.value.kind is FailureKind.UNDER_WAY
    assert [look for look, count in wire.unanswered.items() if count] == [Operation.LIST_TOPICS]
    with pytest.raises(AnswerLost) as caught:
        await create_topic(wire, NewTopic("t", 1, 1), timeout_ms=500, validate_only=True)
    assert caught.value.kind is FailureKind.UNREACHABLE, "a question changes nothing"


@staged(play)
async def test_a_change_that_was_answered_leaves_nothing_open(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    first = cluster.brokers[0]
    first.answers[ApiKey.CREATE_TOPICS] = created(ErrorCode.POLICY_VIOLATION, "no")
    with pytest.raises(Refused):
        await create_topic(wire, NewTopic("t", 1, 1), timeout_ms=500)
    assert not any(wire.unanswered.values())
    first.answers[ApiKey.CREATE_TOPICS] = lambda _: SILENCE
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await create_topic(wire, NewTopic("t", 1, 1), timeout_ms=5000)
    assert wire.unanswered[Operation.LIST_TOPICS] == 1, "given up while it was under way"


@pytest.mark.parametrize("is_frozen", [True, False], ids=["stands still", "dead"])
@staged(play)
async def test_others_are_looked_for_when_no_named_broker_answers(
    cluster: ScriptedCluster, _: WireCluster, /, is_frozen: bool
) -> None:
    first, second = cluster.brokers
    if is_frozen:
        first.is_frozen = True
    else:
        await first.stop()
    asked: list[str] = []
    complaints: list[str] = []

    async def find_more() -> list[tuple[str, int]]:
        asked.append("ZooKeeper")
        return cluster.bootstrap

    wire = WireCluster([(first.host, first.port)], find_more=find_more, complain=complaints.append)
    try:
        assert set(await wire.nodes()) == {0, 1}
        await wire.call_any(MetadataRequest(topics=[]))
    finally:
        await wire.close()
    assert len(second.requests(MetadataRequest)) == 2
    assert asked == ["ZooKeeper"]
    assert complaints == [f"no answer from {first.host}:{first.port}: asking the brokers that ZooKeeper names"]


@pytest.mark.parametrize("is_frozen", [True, False], ids=["stands still", "dead"])
@staged(play)
async def test_only_the_silent_one_is_named_while_another_named_broker_answers(
    cluster: ScriptedCluster, _: WireCluster, /, is_frozen: bool
) -> None:
    async def find_more() -> list[tuple[str, int]]:
        raise AssertionError("looked for more")

    first, second = cluster.brokers
    if is_frozen:
        first.is_frozen = True
    else:
        await first.stop()
    complaints: list[str] = []
    wire = WireCluster(cluster.bootstrap, find_more=find_more, complain=complaints.append)
    try:
        assert set(await wire.nodes()) == {0, 1}
    finally:
        await wire.close()
    addresses = [f"{broker.host}:{broker.port}" for broker in (first, second)]
    assert complaints == [f"no answer from {addresses[0]}: asking {addresses[1]}"]


@staged(play)
async def test_both_are_named_when_nobody_can_be_found_either(cluster: ScriptedCluster, _: WireCluster, /) -> None:
    async def find_more() -> list[tuple[str, int]]:
        raise Unreachable("ZooKeeper does not answer", where="zoo:2181")

    first = cluster.brokers[0]
    await first.stop()
    wire = WireCluster([(first.host, first.port)], find_more=find_more)
    with pytest.raises(Unreachable, match="no broker can be reached") as caught:
        await wire.nodes()
    await wire.close()
    assert str(caught.value.where) == f"{first.host}:{first.port}, zoo:2181"


@staged(play)
async def test_a_name_that_nobody_knows_is_told(
    _: ScriptedCluster, __: WireCluster, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(client: BrokerClient) -> None:
        raise ConnectFailed("cannot connect", address=client.address) from socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(BrokerClient, "connect", connect)
    with pytest.raises(Unreachable, match="no broker can be reached") as caught:
        await WireCluster([("nohost", 19099)]).nodes()
    assert str(caught.value.where) == "nohost:19099 (the name cannot be resolved)"
    assert str(caught.value.hint).startswith("check the spelling of the name")


@staged(play)
async def test_credentials_are_not_waited_for_without_a_word(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    answers = cluster.brokers[0].answers
    answers[ApiKey.DESCRIBE_CLIENT_QUOTAS] = lambda _: DescribeClientQuotasResponse(entries=[])
    answers[ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS] = lambda _: SILENCE
    wire.operation_s = 0.5
    with pytest.raises(Unreachable, match=r"no answer within 0.4 s") as caught:
        await describe_clients(wire, EntityType.USER, None)
    assert caught.value.where == "broker 0, the controller"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, Refused),
        (ErrorCode.POLICY_VIOLATION, Refused),
        (ErrorCode.REQUEST_TIMED_OUT, StillUnderWay),
        (119, Refused),
        (30_000, Refused),
    ],
)
@staged(play)
async def test_refusals_carry_the_clusters_words(
    cluster: ScriptedCluster, wire: WireCluster, /, code: int, error: type[Exception]
) -> None:
    cluster.brokers[0].answers[ApiKey.CREATE_TOPICS] = created(code, "because of this")
    with pytest.raises(error) as refused:
        await create_topic(wire, NewTopic("t", 1, 1), timeout_ms=1000)
    if isinstance(refused.value, Refused):
        assert refused.value.message == "because of this"
        assert refused.value.where == "topic t"


@pytest.mark.parametrize("answer", [HANG_UP, SILENCE])
@staged(play)
async def test_a_change_without_an_answer_is_not_sent_again(
    cluster: ScriptedCluster, wire: WireCluster, /, answer: object
) -> None:
    cluster.brokers[0].answers[ApiKey.CREATE_TOPICS] = lambda request: answer
    with pytest.raises(Unreachable) as lost:
        await create_topic(wire, NewTopic("t"), timeout_ms=200)
    assert lost.value.where == f"{cluster.brokers[0].host}:9092"
    assert len(cluster.brokers[0].requests(CreateTopicsRequest)) == 1


@pytest.mark.parametrize("version", [1, 5, 6])
def test_deleting_in_every_form_of_the_request(version: int) -> None:
    async def scene(cluster: ScriptedCluster, wire: WireCluster) -> None:
        def answer(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
            names = [topic.name for topic in request.topics] or request.topic_names
            codes = {"a": 0, "b": int(ErrorCode.TOPIC_DELETION_DISABLED), "c": int(ErrorCode.REQUEST_TIMED_OUT)}
            return DeleteTopicsResponse(
                responses=[DeletableTopicResult(name=name, error_code=codes[name or ""]) for name in names]
            )

        cluster.brokers[0].answers[ApiKey.DELETE_TOPICS] = answer
        changes, refusals = await delete_topics(wire, ["a", "b", "c"], timeout_ms=1000)
        assert [(c.topic, c.result) for c in changes] == [
            ("a", TopicOutcome.DELETED),
            ("c", TopicOutcome.MARKED_FOR_DELETION),
        ]
        assert [(error.message, error.where) for error in refusals] == [("TOPIC_DELETION_DISABLED", "topic b")]

    play(scene, version_max={ApiKey.DELETE_TOPICS: version})


@staged(play)
async def test_the_first_broker_that_answers_is_enough(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    await cluster.brokers[0].stop()
    assert sorted(await wire.nodes()) == [0, 1]


@staged(play)
async def test_nobody_answers(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    for broker in cluster.brokers:
        await broker.stop()
    with pytest.raises(Unreachable) as nobody:
        await wire.nodes()
    assert all(str(broker.port) in str(nobody.value.where) for broker in cluster.brokers)


@staged(play)
async def test_a_broker_id_that_nobody_has(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    with pytest.raises(NotFound) as unknown:
        await wire.client_of(7)
    assert unknown.value.hint == "live brokers: 0, 1"


@pytest.mark.parametrize("version", [0, 1, 3, 4, 12])
def test_no_version_of_metadata_creates_a_topic(version: int) -> None:
    async def scene(cluster: ScriptedCluster, wire: WireCluster) -> None:
        cluster.leaders = {"a": [0], "b": [0]}
        response = await wire.metadata(["a"])
        assert [topic.name for topic in response.topics] == ["a"]
        (request,) = cluster.brokers[0].requests(MetadataRequest)
        if version >= 4:
            assert not request.allow_auto_topic_creation
        else:
            assert not request.topics, "an old broker may create what it is asked for by name"

    play(scene, version_max={ApiKey.METADATA: version})


@staged(play)
async def test_an_answer_that_is_the_last_one_is_not_decoded_again(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    cluster.leaders = {"a": [0], "b": [0]}
    last = LastAnswer()
    assert len((await wire.metadata(None, last=last)).topics) == 2
    for _ in range(2):
        with pytest.raises(Unchanged):
            await wire.metadata(None, last=last)
    cluster.leaders = {"a": [0], "b": [1]}
    assert [topic.partitions[0].leader_id for topic in (await wire.metadata(None, last=last)).topics] == [0, 1]
    assert len((await wire.metadata(None)).topics) == 2, "who does not ask for that gets each answer"
    last.content = b""
    assert len((await wire.metadata(None, last=last)).topics) == 2


@staged(play)
async def test_whoever_kept_the_command_waiting_is_known_when_its_time_is_over(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    second = cluster.brokers[1]
    second.answers[ApiKey.LIST_OFFSETS] = lambda _: SILENCE
    await wire.nodes()
    assert wire.waits.longest() is None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await wire.call_broker(second.id, ListOffsetsRequest())
    assert wire.waits.longest() == f"{second.host}:{second.port}"


@staged(play)
async def test_an_api_that_the_broker_does_not_have(cluster: ScriptedCluster, wire: WireCluster, /) -> None:
    with pytest.raises(Refused) as refused:
        await create_topic(wire, NewTopic("t"), timeout_ms=1000)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


@staged(play)
async def test_a_first_broker_that_is_frozen_or_gone_holds_nobody_up(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        for first in (frozen.getsockname(), ("127.0.0.1", 1)):
            asked = WireCluster([first, *cluster.bootstrap], properties=ClientProperties(request_timeout_ms=19_000))
            try:
                assert sorted(await asked.nodes()) == [0, 1]
            finally:
                await asked.close()


@staged(play)
async def test_where_nobody_but_a_frozen_broker_is_the_time_out_is_told(_: ScriptedCluster, __: WireCluster, /) -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = frozen.getsockname()
        wire = WireCluster([("127.0.0.1", 1), address], properties=ClientProperties(request_timeout_ms=200))
        with pytest.raises(Unreachable, match="no answer") as caught:
            await wire.nodes()
        assert caught.value.where == f"127.0.0.1:{address[1]}"
        assert caught.value.hint == GIVE_TIME


@pytest.mark.parametrize(
    ("file", "operation_s", "limit_ms"),
    [
        ({}, None, 30_000),
        ({}, 0.5, 500),
        ({}, 300.0, 300_000),
        ({"request.timeout.ms": "7000"}, 300.0, 7000),
        ({"request.timeout.ms": "7000"}, 0.5, 500),
        ({"request.timeout.ms": "7000"}, None, 7000),
    ],
)
def test_how_long_one_answer_is_waited_for(
    tmp_path: Path, file: dict[str, str], operation_s: float | None, limit_ms: int
) -> None:
    """As long as the operation has left, but no longer than the properties file allows if it says anything."""
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in file.items()))
    seen: list[int] = []

    class Client(BrokerClient):
        def __init__(self, host: str, port: int, *, request_timeout_ms: int = 0, **options: Any) -> None:
            super().__init__(host, port, request_timeout_ms=request_timeout_ms, **options)
            seen.append(request_timeout_ms)

    async def ask() -> None:
        wire = WireCluster([("127.0.0.1", 1)], properties=load_client_properties(path), request_timeout_s=operation_s)
        with pytest.raises(Unreachable):
            await wire.metadata([])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.admin.cluster.broker_connections.BrokerClient", Client)
        asyncio.run(ask())
    assert set(seen) == {limit_ms}


@staged(play)
async def test_whoever_waits_for_a_broker_that_fell_silent_fails_at_once_and_others_are_asked(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    first, second = cluster.brokers
    await wire.metadata([])
    first.is_frozen = True
    waiting = [asyncio.create_task(request) for request in (wire.metadata([]), wire.metadata([], broker_id=first.id))]
    await asyncio.sleep(0)
    await wire.fell_silent(first.id, "no answer")
    for task in waiting:
        with pytest.raises(AnswerLost, match="did not answer in time"):
            await task
    assert wire.silent == {first.id: "no answer"}
    before = len(second.received)
    async with asyncio.timeout(0.9):
        await wire.metadata([])
    assert len(second.received) > before, "it does not try the silent one first"


@staged(play)
async def test_who_fell_silent_ends_no_wait_for_another_broker_unless_it_may_be_the_same_one(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    first, second = cluster.brokers
    await wire.metadata([])
    await wire.client_of(second.id)
    assert wire._any is not None and wire._any.port == first.port
    second.is_frozen = True
    waiting = asyncio.create_task(wire.metadata([], broker_id=second.id))
    await asyncio.sleep(0)
    await wire.fell_silent(second.id, "no answer")
    with pytest.raises(AnswerLost, match="did not answer in time"):
        await waiting
    assert wire._any.is_connected, "it is known to be the first broker"
    del wire._nodes[first.id]
    await wire.fell_silent(second.id, "no answer")
    assert not wire._any.is_connected, "nobody knows whose address it is"


@staged(play)
async def test_whoever_waits_is_told_that_klamm_closed_the_connection(
    cluster: ScriptedCluster, wire: WireCluster, /
) -> None:
    cluster.brokers[0].answers[ApiKey.METADATA] = lambda _: SILENCE
    for reason, sentence in ((None, "klamm closed the connection"), ("klamm opens another", "klamm opens another")):
        await wire.version(await wire._any_client(), ApiKey.METADATA)
        waiting = asyncio.create_task(wire.metadata([]))
        await asyncio.sleep(0)
        await (wire.close() if reason is None else wire.close(reason))
        with pytest.raises(AnswerLost) as error:
            await waiting
        assert error.value.message == sentence
