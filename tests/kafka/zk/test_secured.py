"""Sessions with a real ZooKeeper that asks for TLS or a login: who gets in, and what the others are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from certificates import Authority
from event_loop import in_event_loop
from secured_zookeeper import DIGEST_MODULE, SecuredZooKeeper, digest_module, secured_zookeeper

from engine.common.errors import ConfigError
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import AuthFailed, LoginRequired, NoAuth, NotAdmitted, TlsFailed
from engine.kafka.zk.operations import Acl
from engine.kafka.zk.security import OPEN, ZkSecurity, zk_security
from engine.kafka.zk.session_keeper import SessionEvent


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    with secured_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


async def opened(connect: str, security: ZkSecurity) -> ZkClient:
    return await ZkClient.connect(connect, security=security, session_timeout_ms=60_000)


def identities(acl: tuple[Acl, ...]) -> list[tuple[str, str, int]]:
    return [(entry.scheme, entry.identity, entry.permissions) for entry in acl]


@pytest.mark.parametrize("user", ["kafka", "alice"])
@in_event_loop
async def test_what_a_login_by_digest_md5_creates_is_its_own(server: SecuredZooKeeper, user: str) -> None:
    async with await opened(server.connect_string, zk_security({}, {}, server.jaas(user))) as client:
        assert client.security.identities == (f"sasl:{user}",)
        await client.create(f"/{user}-has")
        assert identities((await client.get_acl(f"/{user}-has"))[0]) == [
            ("sasl", user, 31),
            ("world", "anyone", 1),
        ]
    async with await opened(server.connect_string, OPEN) as stranger:
        assert await stranger.get(f"/{user}-has")
        with pytest.raises(NoAuth, match=f"/{user}-has"):
            await stranger.set(f"/{user}-has", b"x")


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
@in_event_loop
async def test_a_section_for_brokers_is_a_login_by_digest_md5_too(server: SecuredZooKeeper, module: str) -> None:
    """Kafka takes such a file as well: ZooKeeper's client only asks the module for a name and a password."""
    jaas = server.folder / f"{module}.conf"
    own = server.jaas("alice").read_text("utf-8").replace(DIGEST_MODULE, f"org.apache.kafka.common.security.{module}")
    jaas.write_text(own, encoding="utf-8")
    async with await opened(server.connect_string, zk_security({}, {}, jaas)) as client:
        assert client.security.identities == ("sasl:alice",)
        await client.create(f"/{module}")
        assert identities((await client.get_acl(f"/{module}"))[0])[0] == ("sasl", "alice", 31)


@in_event_loop
async def test_a_server_without_logins_is_told_apart_from_a_wrong_password(
    server: SecuredZooKeeper, zk_chroot: str
) -> None:
    with pytest.raises(AuthFailed, match=r"ZooKeeper refuses kafka by DIGEST-MD5: .*it is not set up for such logins"):
        await opened(zk_chroot, zk_security({}, {}, server.jaas("kafka")))


@in_event_loop
async def test_it_logs_in_again_on_each_connection(server: SecuredZooKeeper) -> None:
    async with await opened(server.connect_string, zk_security({}, {}, server.jaas("kafka"))) as client:
        await client.create("/again", b"")
        events: list[SessionEvent] = []
        client.add_session_listener(events.append)
        for number in range(3):
            client.break_connection()
            await client.set("/again", b"%d" % number)
        assert events.count(SessionEvent.SUSPENDED) == 3


SAID: Mapping[str, tuple[type[NotAdmitted], str]] = {
    "wrong password": (AuthFailed, "ZooKeeper refuses alice by DIGEST-MD5"),
    "unknown user": (AuthFailed, "ZooKeeper refuses nobody by DIGEST-MD5"),
    "unknown CA": (TlsFailed, "no CA in the trust store has signed the certificate"),
    "unknown client certificate": (TlsFailed, "ZooKeeper refuses this client's certificate"),
    "TLS to a port without": (TlsFailed, "does not speak TLS"),
    "no version in common": (TlsFailed, "no TLS version"),
}


def refused(server: SecuredZooKeeper, name: str) -> tuple[str, ZkSecurity]:
    """Return a server and security that do not go together."""
    plain, secure = server.connect_string, server.secure_connect_string
    other = Authority("another CA")
    ca, client = server.folder / "other-ca.pem", server.folder / "other.pem"
    ca.write_text(other.pem)
    other.sign("klamm").write_pem(client)
    return {
        "wrong password": (plain, zk_security({}, {}, server.jaas("alice", "wr0ng-Secr3t"))),
        "unknown user": (plain, zk_security({}, {}, server.jaas("nobody", "wr0ng-Secr3t"))),
        "unknown CA": (secure, zk_security(server.tls(zookeeper_ssl_truststore_location=str(ca)), {})),
        "unknown client certificate": (
            secure,
            zk_security(server.tls(zookeeper_ssl_keystore_location=str(client)), {}),
        ),
        "TLS to a port without": (plain, zk_security(server.tls(), {})),
        "no version in common": (secure, zk_security(server.tls(zookeeper_ssl_protocol="TLSv1.2"), {})),
    }[name]


@pytest.mark.parametrize("name", SAID)
def test_who_is_not_admitted_is_told_why_at_once(server: SecuredZooKeeper, name: str) -> None:
    kind, said = SAID[name]
    connect, security = refused(server, name)
    began = time.monotonic()
    with pytest.raises(kind, match=said) as caught:
        asyncio.run(opened(connect, security))
    assert time.monotonic() - began < 30, "it waits for no time-out"
    assert caught.value.hint
    assert "Secr3t" not in f"{caught.value} {caught.value.hint} {security}"


@pytest.mark.parametrize("user", [None, "kafka"])
@in_event_loop
async def test_tls_alone_and_with_a_login(server: SecuredZooKeeper, user: str | None) -> None:
    security = zk_security(server.tls(), {}, server.jaas(user) if user else None)
    async with await opened(server.secure_connect_string, security) as client:
        await client.create(f"/tls-{user}", b"x" * 300_000)
        # More than one record of TLS in each direction, and many answers in one.
        many = await client.get_many([f"/tls-{user}"] * 50)
        assert {len(answer[0]) for answer in many if isinstance(answer, tuple)} == {300_000}
        client.break_connection()
        assert (await client.get(f"/tls-{user}"))[0] == b"x" * 300_000
        (first, *_) = (await client.get_acl(f"/tls-{user}"))[0]
        assert first == (Acl(31, "sasl", "kafka") if user else Acl(31, "world", "anyone"))


@in_event_loop
async def test_a_certificate_is_a_login(server: SecuredZooKeeper) -> None:
    store = server.ca.sign("anna").write_pem(server.folder / "anna.pem", "key-Secr3t")
    entries = server.tls(zookeeper_ssl_keystore_location=str(store), zookeeper_ssl_keystore_password="key-Secr3t")
    async with await opened(server.secure_connect_string, zk_security(entries, {})) as client:
        await client.create("/annas")
        assert identities((await client.get_acl("/annas"))[0])[0] == ("x509", "CN=anna", 31)


def test_stores_that_cannot_be_used_are_named_by_the_keys_of_zookeeper(server: SecuredZooKeeper) -> None:
    entries = server.tls(zookeeper_ssl_truststore_location="/nowhere/trust.jks")
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.truststore\.location=/nowhere/trust\.jks"):
        asyncio.run(opened(server.secure_connect_string, zk_security(entries, {})))


def test_a_server_that_serves_nobody_without_a_login_says_so(tmp_path: Path) -> None:
    settings = {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl", "4lw.commands.whitelist": "*"}

    async def run(server: SecuredZooKeeper) -> None:
        async with AsyncExitStack() as stack:
            client = await opened(server.connect_string, zk_security({}, {}, server.jaas("kafka")))
            await stack.enter_async_context(client)
            await client.create("/mine")
        with pytest.raises(LoginRequired, match="serves nobody without a login"):
            await opened(server.connect_string, OPEN)

    with secured_zookeeper(tmp_path, settings=settings, has_tls=False) as server:
        asyncio.run(run(server))


def test_the_words_of_kafka_and_of_java_mean_the_same(tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(f"ZooKeeperClient {{ {digest_module('kafka', 'zk-Secr3t')} }};")
    options = (
        f"-Djava.security.auth.login.config={jaas} -Dzookeeper.sasl.clientconfig=ZooKeeperClient "
        "-Dzookeeper.client.secure=true -Dzookeeper.ssl.trustStore.location=/ca.p12 "
        "-Dzookeeper.ssl.hostnameVerification=false"
    )
    by_java = zk_security({}, {"KAFKA_OPTS": options})
    said = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": "/ca.p12",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
        "klamm.zookeeper.sasl.jaas.config": digest_module("kafka", "zk-Secr3t"),
    }
    assert zk_security(said, {}) == by_java
    assert by_java.tls is not None and dict(by_java.tls.entries)["ssl.truststore.type"] == "PKCS12"
    off = zk_security({}, {"KAFKA_OPTS": f"{options} -Dzookeeper.sasl.client=false"})
    assert (off.login, zk_security({"zookeeper.ssl.client.enable": "false"}, {"KAFKA_OPTS": options}).tls) == (
        None,
        None,
    )


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"klamm.zookeeper.digest": "kafka"}, "is not USER:PASSWORD"),
        ({"klamm.zookeeper.sasl.jaas.config": "a.b.OtherModule required;"}, "a.b.OtherModule is not one of those"),
        ({"klamm.zookeeper.sasl.jaas.config": digest_module("a", "b").replace("username", "name")}, "lacks username"),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.crl.enable": "true"}, "was revoked"),
    ],
)
def test_what_cannot_be_meant_is_refused(entries: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        zk_security(entries, {})
