"""A broker that is told to protect its listeners: it does, or it does not start and says why in one sentence."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from broker_program import BrokerProgram, settings
from certificates import Authority
from event_loop import staged
from guest_cluster import GuestCluster
from klamm_program import in_process
from network_serving import run
from patience import within

from engine.broker.server.kafka_server import KafkaServer
from engine.common.errors import ConfigError
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.password_encoder import PasswordEncoder
from engine.kafka.config.properties import format_properties
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

CA = Authority()
OTHER_CA = Authority("another CA")


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    yield own_loopback_address()


def tls_settings(folder: Path, host: str, zookeeper: str, **more: str) -> dict[str, str]:
    """Return the settings of a broker whose only listener is encrypted, with a certificate of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "ca.pem").write_text(CA.pem)
    store = CA.sign("broker", [host]).write_pem(folder / "broker.pem")
    own = {
        "listeners": f"SSL://{host}:9093",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    return settings(folder, host, zookeeper) | own | {key.replace("_", "."): value for key, value in more.items()}


ABSENT = "absent"
Change = Callable[[Path], dict[str, str]]


def store_of(signed: Any, name: str = "changed.pem", password: str | None = None) -> Change:
    return lambda folder: {"ssl.keystore.location": str(signed.write_pem(folder / name, password))}


def mixed_pair(folder: Path) -> dict[str, str]:
    first, second = CA.sign("one"), CA.sign("two")
    (folder / "mixed.pem").write_text(first.key_pem() + second.certificate_pem)
    return {"ssl.keystore.location": str(folder / "mixed.pem")}


def locked_jks(folder: Path) -> dict[str, str]:
    pem, p12 = CA.sign("jks").write_pem(folder / "jks.pem"), folder / "store.p12"
    subprocess.run(
        ["openssl", "pkcs12", "-export", "-in", str(pem), "-out", str(p12), "-passout", "pass:right"], check=True
    )
    return {"ssl.keystore.location": str(p12), "ssl.keystore.type": "PKCS12", "ssl.keystore.password": "wr0ng-Secr3t"}


OWN = "listener.name.sasl_plaintext."
PLAIN_JAAS = f"{OWN}plain.sasl.jaas.config"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def sasl(more: Mapping[str, str] = {}) -> Change:
    listener = {"listeners": "SASL_PLAINTEXT://127.0.0.1:9093", "security.inter.broker.protocol": "SASL_PLAINTEXT"}
    return lambda folder: listener | dict(more)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: {"ssl.keystore.location": str(f / "none.pem")}, ("none.pem", "no such file", "ssl.keystore")),
        (lambda f: {"ssl.keystore.location": ""}, ("ssl.keystore.location is missing",)),
        (locked_jks, ("password", "store.p12", "wrong")),
        (store_of(CA.sign("locked"), password="right"), ("changed.pem", "encrypted", "ssl.key.password")),
        (store_of(CA.sign("late", days=(-9, -2))), ("changed.pem", "expired")),
        (store_of(CA.sign("early", days=(2, 9))), ("changed.pem", "not yet valid")),
        (mixed_pair, ("mixed.pem", "does not belong to its certificate")),
        (lambda f: {"ssl.keystore.location": str(CA.write_signed_with_sha1(f / "old.pem"))}, ("old.pem", "SHA-1")),
        (store_of(OTHER_CA.sign("stranger")), ("ca.pem does not trust", "changed.pem", "among themselves")),
        (lambda f: {"ssl.truststore.location": str(f / "none.pem")}, ("none.pem", "ssl.truststore")),
        (lambda f: {"ssl.enabled.protocols": "SSLv3"}, ("ssl.enabled.protocols", "SSLv3")),
        (lambda f: {"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, ("no shared cipher",)),
        (lambda f: {"ssl.cipher.suites": "TLS_NONSENSE_WITH_NOTHING"}, ("ssl.cipher.suites", "NONSENSE")),
        (lambda f: {"ssl.client.auth": "perhaps"}, ("ssl.client.auth", "perhaps")),
        (lambda f: {"ssl.principal.mapping.rules": "RULE:(/x/"}, ("ssl.principal.mapping.rules", "RULE:(/x/")),
        (lambda f: {"listener.name.ssl.ssl.keystore.location": str(f / "own.pem")}, ("own.pem", "listener SSL")),
        (lambda f: {"listeners": "SECRET://127.0.0.1:9093"}, ("SECRET", "security protocol")),
        (lambda f: {"security.inter.broker.protocol": "PLAINTEXT"}, ("inter.broker.listener.name", "SSL")),
        (lambda f: {"security.inter.broker.protocol": ABSENT, "inter.broker.listener.name": "INSIDE"}, ("INSIDE",)),
        (lambda f: {"ssl.keystore.type": "BKS"}, ("ssl.keystore.type=BKS", "JKS, PKCS12, PEM")),
        (lambda f: {"ssl.truststore.location": str(f / "broker.pem"), "ssl.truststore.type": "JKS"},
         ("broker.pem", "ssl.truststore")),
        (sasl(), ("listener SASL_PLAINTEXT", "gssapi.sasl.jaas.config is missing")),
        (sasl({"sasl.enabled.mechanisms": "DIGEST-MD5"}), ("listener SASL_PLAINTEXT", "DIGEST-MD5 is not one of")),
        (sasl({"sasl.enabled.mechanisms": "PLAIN"}), (f"{PLAIN_JAAS} is missing",)),
        (sasl({"sasl.enabled.mechanisms": "PLAIN", PLAIN_JAAS: "nonsense"}), ("JAAS", "control flag")),
        (sasl({"sasl.enabled.mechanisms": "PLAIN", PLAIN_JAAS: 'a.b.Module required user_x="wr0ng-Secr3t";'}),
         ("a.b.Module", "PlainLoginModule")),
        (sasl({"sasl.enabled.mechanisms": "PLAIN", PLAIN_JAAS: f'{PLAIN} required user_x="wr0ng-Secr3t";'}),
         ("sasl.mechanism.inter.broker.protocol=GSSAPI", "PLAIN")),
        (sasl({"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN",
               PLAIN_JAAS: f'{PLAIN} required username="x" user_x="wr0ng-Secr3t";'}), ("brokers log in", "password")),
        (sasl({"sasl.enabled.mechanisms": "SCRAM-SHA-512", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}),
         ("brokers log in", "sasl.jaas.config")),
        (sasl({"sasl.enabled.mechanisms": "SCRAM-SHA-512", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
               f"{OWN}scram-sha-512.sasl.jaas.config": f"{SCRAM} required;"}), ("brokers log in", "username")),
        (sasl({"sasl.enabled.mechanisms": "SCRAM-SHA-512", "principal.builder.class": "a.b.Builder"}),
         ("principal.builder.class=a.b.Builder", "Java class")),
        (sasl({"sasl.enabled.mechanisms": "SCRAM-SHA-512", f"{OWN}scram-sha-512.sasl.server.callback.handler.class":
               "a.b.Handler"}), ("a.b.Handler", "Java class")),
        (sasl({"sasl.enabled.mechanisms": "SCRAM-SHA-512",
               f"{OWN}scram-sha-512.connections.max.reauth.ms": "soon"}), ("connections.max.reauth.ms=soon",)),
        (sasl({"sasl.enabled.mechanisms": ""}), ("names no mechanism",)),
        (lambda f: {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "admin"},
         ("super.users", "User:name")),
        (lambda f: {"authorizer.class.name": "a.b.Authorizer"}, ("authorizer.class.name", "a.b.Authorizer")),
    ],
)  # fmt: skip
def test_a_wrong_setting_stops_the_start_with_one_sentence(
    tmp_path: Path, zk_chroot: str, change: Change, words: tuple[str, ...]
) -> None:
    given = tls_settings(tmp_path, "127.0.0.1", zk_chroot) | change(tmp_path)
    own = {key: value for key, value in given.items() if value != ABSENT}

    async def start() -> None:
        server = KafkaServer(BrokerConfig(own))
        try:
            await server.start()
        finally:
            await server.stop()

    with pytest.raises(ConfigError) as caught:
        run(start)
    said = str(caught.value)
    assert "\n" not in said
    for word in words:
        assert word in said
    assert "Secr3t" not in said


@staged(run)
async def test_a_keystore_that_only_the_file_names_need_not_be_there(tmp_path: Path, zk_chroot: str, host: str) -> None:
    """As in Kafka: ZooKeeper names another, which has taken its place while the broker ran."""
    own = tls_settings(tmp_path, host, zk_chroot)
    file = Path(own["ssl.keystore.location"])
    stored = {"listener.name.ssl.ssl.keystore.location": str(file.rename(tmp_path / "renewed.pem"))}
    async with await ZkClient.connect(zk_chroot, session_timeout_ms=6_000) as client:
        zk = KafkaZkClient(client)
        await zk.cluster.make_persistent_paths()
        await zk.configs.change_entity_configs(f"brokers/{own['broker.id']}", stored, check_controller=False)
    server = KafkaServer(BrokerConfig(own))
    try:
        await server.start()
        trusted = ssl.create_default_context(cadata=CA.pem)
        _, writer = await asyncio.open_connection(host, 9093, ssl=trusted)
        writer.close()
    finally:
        await server.stop()


def test_brokers_replicate_over_tls_and_tools_connect_with_certificates(
    tmp_path: Path, zk_chroot: str, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two brokers that have no other listener and want certificates, of each other too."""
    hosts = (host, own_loopback_address())
    brokers = [
        BrokerProgram(
            tmp_path / str(number),
            tls_settings(
                tmp_path / str(number), each, zk_chroot, broker_id=str(number), ssl_client_auth="required",
                group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="1",
                offsets_topic_replication_factor="2",
            ),
        )
        for number, each in enumerate(hosts)
    ]  # fmt: skip
    with brokers[0], brokers[1]:
        for broker in brokers:
            broker.wait_until_started()
        address = ("--bootstrap-server", f"{hosts[0]}:9093")
        client = tmp_path / "client.properties"
        client.write_text(
            format_properties(
                {
                    "security.protocol": "SSL",
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(tmp_path / "0" / "ca.pem"),
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": str(CA.sign("admin").write_pem(tmp_path / "admin.pem")),
                }
            )
        )
        secured = (*address, "--command-config", str(client))
        # Both serve, but the controller may learn of the second one a moment later.
        is_in_time = within(60)
        while len(in_process("brokers", "list", *secured, "-o", "json", capture=capsys).json) < len(brokers):
            assert is_in_time(), "the controller does not know both brokers"
        words = ("topics", "create", "t", "--partitions", "2", "--replication-factor", "2")
        ran = in_process(*words, *secured, capture=capsys)
        assert ran.code == 0, ran.err
        lines = "".join(f"value {number}\n" for number in range(1000))
        ran = in_process("produce", "t", *secured, capture=capsys, stdin=lines)
        assert ran.code == 0, ran.err
        ran = in_process("consume", "t", "--group", "g", "--from-beginning", "--max-messages", "1000", *secured,
                         capture=capsys)  # fmt: skip
        assert ran.code == 0 and sorted(ran.out.splitlines()) == sorted(lines.splitlines()), ran.err
        ran = in_process("topics", "describe", "t", *secured, "-o", "json", capture=capsys)
        assert all(sorted(partition["isr"]) == [0, 1] for partition in ran.json[0]["partitions"]), ran.json
        # Without a certificate nobody gets in, and the sentence says so.
        client.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\n"
                          f"ssl.truststore.location={tmp_path / '0' / 'ca.pem'}\n")  # fmt: skip
        ran = in_process("topics", "list", *secured, capture=capsys)
        assert ran.code in (3, 4) and "certificate" in ran.err, ran.err
        for broker in reversed(brokers):
            assert broker.terminate() == 0


def test_a_new_secret_takes_the_place_of_the_old_one(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The passwords that ZooKeeper has are encrypted anew when the broker starts with both secrets."""
    name = "listener.name.other.ssl.key.password"

    def stored(cluster: LocalCluster) -> str:
        async def read() -> str:
            async with await ZkClient.connect(cluster.zookeeper_connect, session_timeout_ms=6_000) as zk:
                return (await KafkaZkClient(zk).configs.get_entity_configs("brokers/0"))[name]

        return asyncio.run(read())

    with GuestCluster(zookeeper, 1, directory=tmp_path, config={"password.encoder.secret": "first"}) as cluster:
        change = ("configs", "alter", "--broker", "0", "--add-config", f"{name}=opensesame", "--yes")
        assert in_process(*change, "-b", cluster.bootstrap_servers, capture=capsys).code == 0
        assert PasswordEncoder("first").decode(stored(cluster)) == "opensesame"
        cluster.restart_broker(0, {"password.encoder.secret": "second", "password.encoder.old.secret": "first"})
        assert PasswordEncoder("second").decode(stored(cluster)) == "opensesame"
