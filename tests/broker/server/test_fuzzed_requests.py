"""Requests of every API and version, well-formed and damaged, by the thousand: of peers who have not logged in, of one
without any right, and of one who may do everything.

The first two change nothing and learn nothing; none of them makes a handler fail. Every other peer comes over TLS.
``KLAMM_FUZZ_ROUNDS=N`` (or ``KLAMM_SOAK``) makes them more: 1 is some 3,500 frames. ``KLAMM_FAULT_SEED=N`` makes
others.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_logs import assert_no_fault
from broker_program import BrokerProgram, settings
from certificates import Authority
from event_loop import in_event_loop
from login_serving import frame
from network_serving import read_frame
from odd_requests import REQUESTS, damaged, long_request, odd_request
from soak import rounds

from engine.broker.handlers.registry import all_handlers
from engine.common.acl import AclOperation, ResourceType
from engine.kafka.acls import type_code
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.security import security_of
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.kafka.zk.client import ZkClient
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

FRAMES = 1500 * rounds("KLAMM_FUZZ_ROUNDS", 1)
SEED = int(os.environ.get("KLAMM_FAULT_SEED", "34"))
A_TIME = 6
"""Frames of one connection."""
AT_ONCE = 8
PATIENCE_S = 60.0
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
NAMES = ("orders", "group", "txn")
"""Of what exists, and of what nobody without a right may know more than that."""
HIDDEN = b"hidden-"
"""Names and values that no request says, so that no answer may."""
SERVED = [(key, version) for key, version in REQUESTS if key in all_handlers()]
OF_CONTROLLER = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN)
"""These make a broker what they say, so whoever may send them is trusted."""
OF_CLIENTS = [each for each in SERVED if each[0] not in OF_CONTROLLER]
CA = Authority()
CONTEXT = ssl.create_default_context(cadata=CA.pem)
CONTEXT.check_hostname = False
HANDSHAKE = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)


class Broker:
    """The running broker."""

    def __init__(self, folder: Path, host: str, zookeeper: str) -> None:
        self.folder, self.host, self.zookeeper = folder, host, zookeeper

    def client(self, user: str) -> BrokerClient:
        jaas = f'{MODULE} required username="{user}" password="{user}-pw";'
        properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
        return BrokerClient(self.host, 9092, client_id="t", security=security_of(properties))

    def settings(self) -> dict[str, str]:
        users = " ".join(f'user_{name}="{name}-pw"' for name in ("admin", "mallory"))
        return settings(self.folder, self.host, self.zookeeper) | {
            "listeners": f"SASL_PLAINTEXT://{self.host}:9092,SASL_SSL://{self.host}:9093",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(CA.sign("broker", [self.host]).write_pem(self.folder / "broker.pem")),
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            **{
                f"listener.name.{name}.{mechanism}.sasl.jaas.config": jaas
                for name in ("sasl_plaintext", "sasl_ssl")
                for mechanism, jaas in (
                    ("plain", f'{MODULE} required username="admin" password="admin-pw" {users};'),
                    ("scram-sha-256", "org.apache.kafka.common.security.scram.ScramLoginModule required;"),
                )
            },
            "connection.failed.authentication.delay.ms": "0",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin",
            "delegation.token.secret.key": "hidden-secret",
            "auto.create.topics.enable": "true",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.initial.task.delay.ms": "3600000",
        }  # fmt: skip

    async def state(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Return all znodes but the tokens, which everybody may make for themselves, and the content of all logs."""
        znodes: dict[str, bytes] = {}
        async with await ZkClient.connect(self.zookeeper, session_timeout_ms=6_000) as zk:
            folders = ["/"]
            while folders:
                folder = folders.pop()
                for name in await zk.children(folder):
                    path = f"{folder.rstrip('/')}/{name}"
                    if path != "/delegation_token":
                        znodes[path], _ = await zk.get(path)
                        folders.append(path)
        logs = {str(path): path.read_bytes().rstrip(b"\0") for path in (self.folder / "data").glob("*/*.log")}
        return znodes, logs

    async def answers_to(self, data: bytes, number: int = 0) -> bytes:
        """Send bytes and no more, an odd number's over TLS; return what comes until the broker ends the connection, or
        has nothing to say.
        """
        reader, writer = await asyncio.open_connection(self.host, 9092 + number % 2)
        answers = bytearray()
        try:
            async with asyncio.timeout(2):
                if number % 2:
                    await over_tls(reader, writer, data, answers)
                else:
                    writer.write(data)
                    writer.write_eof()
                    while part := await reader.read(1 << 16):
                        answers += part
        except (OSError, RuntimeError, TimeoutError):
            # It hung up, or the damage made a request wait for very long.
            pass
        finally:
            writer.transport.abort()
        return bytes(answers)


async def over_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, answers: bytearray) -> None:
    """Shake hands, send bytes and the end of TLS, and collect what comes. asyncio's TLS cannot end one direction."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = CONTEXT.wrap_bio(incoming, outgoing)
    steps = [tls.do_handshake, lambda: tls.write(data), tls.unwrap]
    while True:
        try:
            while steps:
                steps[0]()
                del steps[0]
            while part := tls.read(1 << 16):
                answers += part
            return
        except ssl.SSLWantReadError:
            if len(steps) == 1:
                # The end is said; what the broker still has to say comes before its own.
                steps.clear()
        writer.write(outgoing.read())
        part = await reader.read(1 << 16)
        if not part:
            return
        incoming.write(part)


async def fill(admin: BrokerClient) -> None:
    """Make what nobody else may learn of: a topic, its records, a group's commit, an id, a rule."""
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in ("orders", "hidden-topic")
    ]  # fmt: skip
    rule = AclCreation(
        resource_type=type_code(ResourceType.TOPIC), resource_name="hidden-rule", principal="User:hidden-user",
        host="*", operation=AclOperation.READ, permission_type=3,
    )  # fmt: skip
    record = Record(0, 1_700_000_000_000, b"hidden-key", b"hidden-value")
    data = [PartitionProduceData(index=0, records=encode_batch([record]))]
    sent = [TopicProduceData(name=name, partition_data=data) for name in ("orders", "hidden-topic")]
    commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="hidden-metadata")
    async with asyncio.timeout(PATIENCE_S):
        while any(topic.error_code for topic in (await admin.send(CreateTopicsRequest(topics=topics), 5)).topics):
            await asyncio.sleep(0.05)
        produced = await admin.send(ProduceRequest(acks=1, timeout_ms=5000, topic_data=sent), 9)
        assert not any(response.partition_responses[0].error_code for response in produced.responses)
        assert not (await admin.send(CreateAclsRequest(creations=[rule]), 2)).results[0].error_code
        for kind in (0, 1):
            while (await admin.send(FindCoordinatorRequest(key="x", key_type=kind), 2)).error_code:
                await asyncio.sleep(0.05)
        for group in ("group", "hidden-group"):
            topic = OffsetCommitRequestTopic(name="orders", partitions=[commit])
            wanted = OffsetCommitRequest(group_id=group, topics=[topic])
            while (await admin.send(wanted, 7)).topics[0].partitions[0].error_code:
                await asyncio.sleep(0.05)
        for name in ("txn", "hidden-txn"):
            init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
            while (await admin.send(init, 1)).error_code:
                await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: EmbeddedZooKeeper) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("fuzzed")
    made = Broker(folder, own_loopback_address(), f"{zookeeper.connect_string}/fuzzed-{uuid.uuid4().hex[:12]}")

    async def prepare() -> None:
        admin = made.client("admin")
        await fill(admin)
        await admin.close()

    with BrokerProgram(folder, made.settings()) as program:
        program.wait_until_started()
        asyncio.run(prepare())
        yield made
        assert program.process.poll() is None
        # A damaged CreatePartitions may have asked for 65,000 partitions, which the broker makes to the end.
        assert program.terminate(10 * PATIENCE_S) == 0
        assert "Traceback" not in program.stderr
        assert_no_fault(folder / "logs")


def login(user: str) -> bytes:
    return HANDSHAKE + frame(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-pw".encode()), 2)


async def attacks(broker: Broker, count: int, attack: object) -> None:
    """Run numbered attacks, some at the same time, and be served meanwhile."""
    admin, numbers = broker.client("admin"), iter(range(count))

    async def go_on() -> None:
        for number in numbers:
            await attack(number)  # type: ignore[operator]

    async with asyncio.TaskGroup() as group:
        attackers = [group.create_task(go_on()) for _ in range(AT_ONCE)]
        while not all(each.done() for each in attackers):
            async with asyncio.timeout(PATIENCE_S):
                assert (await admin.send(MetadataRequest(topics=[]), 4)).brokers
            await asyncio.sleep(0.05)
    await admin.close()


def requests_of(draw: random.Random, apis: list[tuple[ApiKey, int]]) -> list[bytes]:
    """Return some requests, of which the last is damaged: that often ends the connection."""
    frames = [odd_request(draw, *draw.choice(apis), NAMES) for _ in range(A_TIME)]
    return [*frames[:-1], damaged(draw, frames[-1])]


@in_event_loop
async def test_whoever_has_not_logged_in_reaches_no_handler(broker: Broker) -> None:
    """Without a word, after a question for versions, and in the middle of a login."""
    before_login = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    beginnings = (b"", frame(ApiVersionsRequest(), 0), HANDSHAKE)
    usual = [await broker.answers_to(each) for each in beginnings]
    before = await broker.state()

    async def attack(number: int) -> None:
        draw = random.Random(f"{SEED} {number}")
        position = draw.randrange(len(beginnings))
        key, version = draw.choice(REQUESTS)
        sent = odd_request(draw, key, version, NAMES)
        is_damaged = draw.random() < 0.33
        data = beginnings[position] + (damaged(draw, sent) if is_damaged else sent)
        answers = await broker.answers_to(data, number)
        assert HIDDEN not in answers, (number, answers)
        if not is_damaged and key not in before_login:
            assert answers == usual[position], (number, key.name, version, answers)

    await attacks(broker, FRAMES // 3, attack)
    assert await broker.state() == before


@in_event_loop
async def test_whoever_has_no_right_changes_nothing_and_learns_nothing(broker: Broker) -> None:
    before = await broker.state()

    async def attack(number: int) -> None:
        draw = random.Random(f"{SEED} {number}")
        answers = await broker.answers_to(b"".join((login("mallory"), *requests_of(draw, SERVED))), number)
        assert HIDDEN not in answers, (number, answers)

    await attacks(broker, FRAMES // A_TIME, attack)
    assert await broker.state() == before


LONG = [
    (ApiKey.PRODUCE, 9), (ApiKey.LIST_OFFSETS, 5), (ApiKey.METADATA, 9), (ApiKey.DESCRIBE_GROUPS, 5),
    (ApiKey.DELETE_GROUPS, 2), (ApiKey.FIND_COORDINATOR, 4), (ApiKey.DELETE_TOPICS, 5), (ApiKey.CREATE_TOPICS, 5),
    (ApiKey.DESCRIBE_CONFIGS, 4), (ApiKey.OFFSET_FETCH, 8), (ApiKey.DESCRIBE_TRANSACTIONS, 0),
]  # fmt: skip


def test_others_are_served_while_thousands_of_names_are_refused(broker: Broker) -> None:
    """Each name costs a decision, and a line in the log. On a busy machine this process may not get to ask in time."""

    async def served_meanwhile(admin: BrokerClient, key: ApiKey, version: int) -> int:
        reader, writer = await asyncio.open_connection(broker.host, 9092)
        writer.write(login("mallory") + long_request(key, version, 6_000))
        for _ in range(2):
            await read_frame(reader)
        answering, served = asyncio.create_task(read_frame(reader)), 0
        while not answering.done():
            await admin.send(MetadataRequest(topics=[]), 4)
            served += 1
        assert len(await answering) > 6_000
        writer.close()
        return served

    async def check() -> None:
        admin = broker.client("admin")
        await admin.connect()
        for key, version in LONG:
            attempts = 10
            while await served_meanwhile(admin, key, version) <= 3:
                attempts -= 1
                assert attempts, key.name
        await admin.close()

    asyncio.run(check())


@in_event_loop
async def test_whoever_may_do_everything_makes_no_handler_fail(broker: Broker) -> None:
    """The last test: what there was is gone or changed."""

    async def attack(number: int) -> None:
        draw = random.Random(f"{SEED} {number}")
        *whole, last = requests_of(draw, OF_CLIENTS)
        # The damage makes some of them the controller's.
        is_ours = int.from_bytes(last[4:6], "big") not in OF_CONTROLLER
        await broker.answers_to(b"".join((login("admin"), *whole, last if is_ours else b"")), number)

    await attacks(broker, FRAMES // A_TIME, attack)
