"""Kerberos: klamm logs in to Apache Kafka and to ZooKeeper with a keytab and with tickets of a real KDC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_kafka import ApacheKafkaBroker
from kerberos import REALM, Kdc, kdc, keytab_module, ticket_module
from klamm_program import Ran, in_process

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NotAdmitted
from engine.kafka.zk.security import ZkSecurity, zk_security
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

PORT = 21321


class Realm:
    """A KDC, ZooKeeper and a broker of its realm, and the principals alice (by keytab) and anna (by ticket)."""

    def __init__(self, kerberos: Kdc, folder: Path, zookeeper: str) -> None:
        self.kdc, self.folder, self.zookeeper = kerberos, folder, zookeeper
        self.alice = kerberos.keytab("alice")
        self.anna = kerberos.ticket("anna", kerberos.keytab("anna"))

    def client(self, module: str, **more: str) -> Path:
        said = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": module,
            **more,
        }
        path = self.folder / f"client-{len(list(self.folder.glob('client-*')))}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in said.items()))
        return path


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder, host = tmp_path_factory.mktemp("realm"), own_loopback_address()
    with kdc(folder, host) as kerberos, pytest.MonkeyPatch.context() as patch:
        for name, value in kerberos.environment.items():
            patch.setenv(name, value)
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kerberos.krb5_conf}")
        server = folder / "zookeeper.jaas"
        module = keytab_module(kerberos.keytab(f"zookeeper/{host}"), f"zookeeper/{host}@{REALM}")
        server.write_text(f"Server {{ {module} }};\n")
        with EmbeddedZooKeeper(
            host=host,
            fsync=False,
            settings={"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
            java_options=[f"-Djava.security.auth.login.config={server}"],
        ) as zookeeper:
            broker = keytab_module(kerberos.keytab(f"kafka/{host}"), f"kafka/{host}@{REALM}")
            with ApacheKafkaBroker(
                folder,
                broker_id=0,
                host=host,
                port=PORT,
                zookeeper_connect=zookeeper.connect_string,
                overrides={
                    "listeners": f"PLAINTEXT://{host}:{PORT},KERBEROS://{host}:{PORT + 1}",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KERBEROS:SASL_PLAINTEXT",
                    "inter.broker.listener.name": "PLAINTEXT",
                    "sasl.enabled.mechanisms": "GSSAPI",
                    "sasl.kerberos.service.name": "kafka",
                    "listener.name.kerberos.gssapi.sasl.jaas.config": broker,
                    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                    "super.users": "User:alice;User:ANONYMOUS",
                },
                heap="300m",
            ):
                yield Realm(kerberos, folder, zookeeper.connect_string)


def run(realm: Realm, config: Path, *words: str, capture: pytest.CaptureFixture[str]) -> Ran:
    address = f"{realm.kdc.host}:{PORT + 1}"
    return in_process(*words, "-b", address, "--command-config", config, "-o", "json", capture=capture)


def test_a_keytab_and_a_ticket_log_in(realm: Realm, capsys: pytest.CaptureFixture[str]) -> None:
    by_keytab = realm.client(keytab_module(realm.alice, f"alice@{REALM}"))
    made = run(realm, by_keytab, "topics", "create", "orders", "--partitions", "1", capture=capsys)
    assert made.code == 0, made.err
    by_ticket = realm.client(ticket_module(realm.anna))
    seen = run(realm, by_ticket, "topics", "list", capture=capsys)
    assert (seen.code, seen.json) == (0, []), "anna may see no topic"


FAILURES = {
    "no such keytab": ("there is no keytab", lambda r: keytab_module(r.folder / "none.keytab", f"alice@{REALM}")),
    "a keytab without the principal": ("has no key of anna@", lambda r: keytab_module(r.alice, f"anna@{REALM}")),
    "no ticket": ("kinit", lambda r: ticket_module(r.folder / "none.cache")),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_a_failure_says(name: str, realm: Realm, capsys: pytest.CaptureFixture[str]) -> None:
    said, module = FAILURES[name]
    ran = run(realm, realm.client(module(realm)), "topics", "list", capture=capsys)
    told = f"{ran.error['message']} | {ran.error['hint']}"
    print(name, "→", told)
    assert (ran.code, ran.error["kind"]) == (3, "authentication"), told
    assert said in told, told


def test_a_service_that_the_kdc_does_not_know(realm: Realm, capsys: pytest.CaptureFixture[str]) -> None:
    config = realm.client(
        keytab_module(realm.alice, f"alice@{REALM}"), **{"sasl.kerberos.service.name": "kafka-of-another"}
    )
    ran = run(realm, config, "topics", "list", capture=capsys)
    assert (ran.code, ran.error["kind"]) == (3, "authentication")
    assert f"the KDC has no principal kafka-of-another/{realm.kdc.host}" in ran.error["message"], ran.err


def test_zookeeper_by_kerberos(realm: Realm) -> None:
    async def owner(security: ZkSecurity) -> tuple[str, str]:
        async with await ZkClient.connect(realm.zookeeper, security=security) as client:
            await client.create("/by-kerberos")
            client.break_connection()
            acl, _ = await client.get_acl("/by-kerberos")
            await client.delete("/by-kerberos")
            return acl[0].scheme, acl[0].identity

    def security(module: str) -> ZkSecurity:
        return zk_security({"klamm.zookeeper.sasl.jaas.config": module}, {})

    for who, module in (
        ("alice", keytab_module(realm.alice, f"alice@{REALM}")),
        ("anna", ticket_module(realm.anna)),
    ):
        assert asyncio.run(owner(security(module))) == ("sasl", f"{who}@{REALM}")
    with pytest.raises(NotAdmitted, match="kinit"):
        asyncio.run(owner(security(ticket_module(realm.folder / "none.cache"))))
