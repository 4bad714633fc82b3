"""Real clients on klamm's secured listeners: each library by each mechanism it has, over TLS and without."""

from __future__ import annotations

import asyncio
import gc
import re
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from broker_program import BrokerProgram, settings
from certificates import Authority
from confluent_kafka import KafkaError, Producer
from event_loop import in_event_loop
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider
from klamm_program import in_process

from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.sasl.oauthbearer import unsecured_token
from engine.kafka.client.security import security_of
from engine.kafka.config.properties import format_properties
from engine.kafka.formats.scram_credential import HASHES, ScramCredential
from engine.kafka.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from engine.kafka.protocol.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

PASSWORDS = {"broker": "br0ker-Secr3t", "alice": "al1ce-Secr3t"}
MECHANISMS = ("PLAIN", *HASHES, "OAUTHBEARER")
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(HASHES, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
PORTS = {"LOGIN": 9092, "SAFE": 9093, "MUTUAL": 9094}


class Secured:
    """The running broker, whose only way to itself is a login over TLS."""

    def __init__(self, folder: Path, host: str, ca: Authority, program: BrokerProgram) -> None:
        self.folder, self.host, self.ca, self.program = folder, host, ca, program

    def address(self, listener: str) -> str:
        return f"{self.host}:{PORTS[listener]}"

    def properties(self, listener: str, mechanism: str, password: str | None = None) -> dict[str, str]:
        """Return Java's properties for alice."""
        if mechanism == "OAUTHBEARER":
            options = 'unsecuredLoginStringClaim_sub="alice"'
        else:
            options = f'username="alice" password="{password or PASSWORDS["alice"]}"'
        return {
            "security.protocol": "SASL_SSL" if listener == "SAFE" else "SASL_PLAINTEXT",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{MODULES[mechanism]} required {options};",
        }


def broker_settings(folder: Path, host: str, zookeeper: str, store: Path) -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    own = f'username="broker" password="{PASSWORDS["broker"]}"'
    settings_used = settings(folder, host, zookeeper) | {
        "listeners": ",".join(f"{name}://{host}:{port}" for name, port in PORTS.items()),
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,SAFE:SASL_SSL,MUTUAL:SSL",
        "inter.broker.listener.name": "SAFE",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "num.partitions": "1",
    }
    for name in ("login", "safe"):
        for mechanism, module in MODULES.items():
            options = {"PLAIN": users, "OAUTHBEARER": "", "SCRAM-SHA-512": own}.get(mechanism, "")
            settings_used[f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"] = (
                f"{module} required {options};"
            )
    return settings_used


async def make_users(zookeeper: str, *names: str) -> None:
    """Give users their SCRAM passwords before the first broker starts, as kafka-configs --zookeeper does."""
    client = await ZkClient.connect(zookeeper, session_timeout_ms=10_000)
    try:
        zk = KafkaZkClient(client)
        await zk.cluster.make_persistent_paths()
        for name in names:
            texts = {m: ScramCredential.of_password(m, PASSWORDS[name], b"salt", 4096).encode() for m in HASHES}
            await zk.configs.set_entity_configs(f"users/{name}", texts, check_controller=False)
    finally:
        await client.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, zookeeper: EmbeddedZooKeeper) -> Iterator[Secured]:
    chroot = f"{zookeeper.connect_string}/secured-{uuid.uuid4().hex[:12]}"
    folder, host, ca = tmp_path_factory.mktemp("secured"), own_loopback_address(), Authority()
    (folder / "ca.pem").write_text(ca.pem)
    store = ca.sign("broker", [host]).write_pem(folder / "broker.pem")
    with BrokerProgram(folder / "without", broker_settings(folder, host, chroot, store)) as without:
        code, lines = without.refusal()
        assert (code, lines) == (
            2, ["error: brokers log in as user broker by SCRAM-SHA-512, of which ZooKeeper has no credential"],
        )  # fmt: skip
    asyncio.run(make_users(chroot, *PASSWORDS))
    with BrokerProgram(folder, broker_settings(folder, host, chroot, store)) as program:
        program.wait_until_started()
        yield Secured(folder, host, ca, program)
        assert program.terminate() == 0
        said = program.server_log + program.stderr
        assert not re.search("|".join(PASSWORDS.values()), said), "a password is in the log"


CASES = [(listener, mechanism) for listener in ("LOGIN", "SAFE") for mechanism in MECHANISMS]


@pytest.mark.parametrize(("listener", "mechanism"), CASES)
def test_klamm(
    secured: Secured, listener: str, mechanism: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    client = tmp_path / "client.properties"
    client.write_text(format_properties(secured.properties(listener, mechanism)))
    common = ("--bootstrap-server", secured.address(listener), "--command-config", str(client))
    topic = f"klamm-{listener}-{mechanism}"
    ran = in_process("topics", "create", topic, *common, capture=capsys)
    assert ran.code == 0, ran.err
    ran = in_process("produce", topic, *common, capture=capsys, stdin="a\nb\n")
    assert ran.code == 0, ran.err
    ran = in_process("consume", topic, "--from-beginning", "--max-messages", "2", *common, capture=capsys)
    assert (ran.code, ran.out) == (0, "a\nb\n"), ran.err


@pytest.mark.parametrize(("listener", "mechanism"), CASES)
def test_librdkafka(secured: Secured, listener: str, mechanism: str) -> None:
    errors: list[Any] = []
    producer = Producer(librdkafka(secured, listener, mechanism) | {"error_cb": errors.append})
    producer.produce(f"rd-{listener}-{mechanism}", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0 and errors == [None], errors


def librdkafka(secured: Secured, listener: str, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.address(listener),
        "security.protocol": "SASL_SSL" if listener == "SAFE" else "SASL_PLAINTEXT",
        "ssl.ca.location": str(secured.folder / "ca.pem"),
        "sasl.mechanism": mechanism,
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "log_level": 2,
    } | (
        {"sasl.oauthbearer.config": "principal=alice"}
        if mechanism == "OAUTHBEARER"
        else {"sasl.username": "alice", "sasl.password": PASSWORDS["alice"]}
    )


def test_librdkafka_with_a_wrong_password_and_with_a_certificate(secured: Secured, tmp_path: Path) -> None:
    errors: list[KafkaError] = []
    wrong = librdkafka(secured, "SAFE", "SCRAM-SHA-512") | {"sasl.password": "wrong", "error_cb": errors.append}
    producer = Producer(wrong)
    producer.produce("rd", b"x")
    while not errors:
        producer.poll(1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    producer.purge()
    store = secured.ca.sign("alice").write_pem(tmp_path / "alice.pem")
    errors.clear()
    producer = Producer({
        "bootstrap.servers": secured.address("MUTUAL"), "security.protocol": "SSL",
        "ssl.ca.location": str(secured.folder / "ca.pem"), "ssl.certificate.location": str(store),
        "ssl.key.location": str(store),
    })  # fmt: skip
    producer.produce("rd-mutual", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0 and errors == [None]


class _Token(PythonTokenProvider):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)

    def token(self) -> str:
        return unsecured_token({"unsecuredLoginStringClaim_sub": "alice"})


@pytest.mark.parametrize(("listener", "mechanism"), CASES)
def test_kafka_python(secured: Secured, listener: str, mechanism: str) -> None:
    options: dict[str, Any] = {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORDS["alice"]}
    if mechanism == "OAUTHBEARER":
        options = {"sasl_oauth_token_provider": _Token()}
    producer = KafkaProducer(
        bootstrap_servers=secured.address(listener),
        security_protocol="SASL_SSL" if listener == "SAFE" else "SASL_PLAINTEXT",
        ssl_cafile=str(secured.folder / "ca.pem"),
        sasl_mechanism=mechanism,
        **options,
    )
    try:
        assert producer.send(f"kp-{listener}-{mechanism}", b"x").get(30).offset >= 0
    finally:
        producer.close()


class _AioToken(AbstractTokenProvider):
    async def token(self) -> str:
        return unsecured_token({"unsecuredLoginStringClaim_sub": "alice"})


@pytest.mark.parametrize(("listener", "mechanism"), CASES)
def test_aiokafka(secured: Secured, listener: str, mechanism: str) -> None:
    async def check(password: str) -> int:
        from aiokafka.helpers import create_ssl_context

        options: dict[str, Any] = {"sasl_plain_username": "alice", "sasl_plain_password": password}
        if mechanism == "OAUTHBEARER":
            options = {"sasl_oauth_token_provider": _AioToken()}
        producer = AIOKafkaProducer(
            bootstrap_servers=secured.address(listener),
            security_protocol="SASL_SSL" if listener == "SAFE" else "SASL_PLAINTEXT",
            ssl_context=create_ssl_context(cafile=str(secured.folder / "ca.pem")),
            sasl_mechanism=mechanism,
            **options,
        )
        try:
            await producer.start()
            sent = await producer.send_and_wait(f"aio-{listener}-{mechanism}", b"x")
            return int(sent.offset)
        finally:
            await producer.stop()

    assert asyncio.run(check(PASSWORDS["alice"])) >= 0
    if mechanism != "OAUTHBEARER":
        with pytest.raises(KafkaConnectionError):
            asyncio.run(check("wrong"))
        # aiokafka does not wait until the connection of a refused login has closed. It is collected here, so that its
        # warning does not fall into another test.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@in_event_loop
async def test_credentials_are_told_changed_and_deleted(secured: Secured) -> None:
    client = BrokerClient(secured.host, PORTS["SAFE"], client_id="t",
                          security=security_of(secured.properties("SAFE", "PLAIN")))  # fmt: skip
    request = DescribeUserScramCredentialsRequest(users=None)

    async def alter(*changes: Any) -> list[tuple[str, int, str | None]]:
        answer = await client.call(AlterUserScramCredentialsRequest(
            deletions=[c for c in changes if isinstance(c, ScramCredentialDeletion)],
            upsertions=[c for c in changes if isinstance(c, ScramCredentialUpsertion)],
        ))  # fmt: skip
        return [(result.user, result.error_code, result.error_message) for result in answer.results]

    def upsert(name: str, mechanism: int = 1, iterations: int = 8192, salted: bytes = b"s" * 32) -> Any:
        return ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=b"x", salted_password=salted
        )

    assert [(result.user, [(i.mechanism, i.iterations) for i in result.credential_infos])
            for result in (await client.call(request)).results] == [
        ("alice", [(1, 4096), (2, 4096)]), ("broker", [(1, 4096), (2, 4096)]),
    ]  # fmt: skip
    assert await alter(upsert("odd/näme*"), upsert("few", iterations=4095), upsert("many", iterations=16385),
                       upsert("none", 3), upsert(""), upsert("twice"), upsert("twice"), upsert("empty", salted=b""),
                       ScramCredentialDeletion(name="nobody", mechanism=1)) == [
        ("nobody", 91, "Attempt to delete a user credential that does not exist"),
        ("odd/näme*", 0, ""),
        ("few", 93, "Too few iterations"),
        ("many", 93, "Too many iterations"),
        ("none", 33, "Unknown SCRAM mechanism"),
        ("", 93, "Username must not be empty"),
        ("twice", 92, "A user credential cannot be altered twice in the same request"),
        ("empty", 93, "Password must not be empty"),
    ]  # fmt: skip
    errors = {result.user: result.error_code for result in (await client.call(request)).results}
    assert errors == {"alice": 0, "broker": 0, "odd/näme*": 0}
    assert await alter(ScramCredentialDeletion(name="odd/näme*", mechanism=1)) == [("odd/näme*", 0, "")]
    assert {result.user for result in (await client.call(request)).results} == {"alice", "broker"}
    await client.close()
