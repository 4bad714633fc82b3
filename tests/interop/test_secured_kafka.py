"""klamm against a secured Apache Kafka: each security protocol, mechanism and form of store, and what failures say."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from pathlib import Path

import pytest
from apache_kafka import ApacheKafkaBroker
from certificates import Authority
from klamm_program import ROOT, Ran, in_process
from secured_kafka import FIRST_PORT, SHORT_MS, SecuredKafka, jaas

from engine.admin.cluster.target import Naming, Side, resolve_target
from engine.admin.watch.frame import Frame, LinkState, Stage
from engine.admin.watch.live_feed import LiveFeed

KEYTOOL = ("-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class Operator:
    """Runs klamm on one listener."""

    def __init__(self, kafka: SecuredKafka, capture: pytest.CaptureFixture[str]) -> None:
        self.kafka, self.capture = kafka, capture

    def run(self, listener: str, config: Path, *words: str, stdin: str = "") -> Ran:
        address = ("--bootstrap-server", self.kafka.address(listener), "--command-config", str(config))
        return in_process(*words, *address, capture=self.capture, stdin=stdin)


@pytest.fixture
def operator(kafka: SecuredKafka, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(kafka, capsys)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["LOGIN", "SAFE"])
def test_each_mechanism_logs_in(listener: str, mechanism: str, operator: Operator) -> None:
    ran = operator.run(listener, operator.kafka.login(listener, mechanism), "brokers", "list", "-o", "json")
    assert ran.code == 0, ran.err
    assert [broker["id"] for broker in ran.json] == [0]


@pytest.fixture(scope="module")
def stores(kafka: SecuredKafka) -> dict[str, dict[str, str]]:
    """The same client certificate and CA in each form, as properties. Java's own keytool makes the binary ones."""
    folder = kafka.folder
    admin = kafka.ca.sign("admin")
    pem = admin.write_pem(folder / "admin.pem")
    locked = admin.write_pem(folder / "locked.pem", "pem-Secr3t")
    p12 = folder / "admin.p12"
    run("openssl", "pkcs12", "-export", "-in", pem, "-out", p12, "-name", "admin", "-passout", "pass:store-Secr3t")
    trust = {}
    for kind in ("JKS", "PKCS12"):
        trust[kind] = folder / f"trust.{kind}"
        run("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", folder / "ca.pem", "-keystore", trust[kind],
            "-storetype", kind, "-storepass", "trust-Secr3t", *KEYTOOL)  # fmt: skip
    jks = folder / "admin.jks"
    run("keytool", "-importkeystore", "-noprompt", "-srckeystore", p12, "-srcstoretype", "PKCS12", "-srcstorepass",
        "store-Secr3t", "-destkeystore", jks, "-deststoretype", "JKS", "-deststorepass", "store-Secr3t",
        "-srcalias", "admin", "-destkeypass", "key-Secr3t", *KEYTOOL)  # fmt: skip
    one_line = "".join(admin.certificate_pem.splitlines())

    def binary(kind: str, store: Path, **more: str) -> dict[str, str]:
        return {
            "ssl_truststore_type": kind, "ssl_truststore_location": str(trust[kind]),
            "ssl_truststore_password": "trust-Secr3t", "ssl_keystore_type": kind,
            "ssl_keystore_location": str(store), "ssl_keystore_password": "store-Secr3t", **more,
        }  # fmt: skip

    return {
        "PEM": {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(pem)},
        "encrypted PEM": {
            "ssl_keystore_type": "PEM", "ssl_keystore_location": str(locked), "ssl_key_password": "pem-Secr3t",
        },
        "inline PEM": {
            "ssl_keystore_type": "PEM", "ssl_keystore_key": admin.key_pem().replace("\n", "\\n"),
            "ssl_keystore_certificate_chain": one_line,
        },
        "JKS": binary("JKS", jks, ssl_key_password="key-Secr3t"),
        "PKCS12": binary("PKCS12", p12),
    }  # fmt: skip


def run(*words: str | Path) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("form", ["PEM", "encrypted PEM", "inline PEM", "JKS", "PKCS12"])
def test_each_form_of_store(form: str, stores: dict[str, dict[str, str]], operator: Operator) -> None:
    config = operator.kafka.client("MUTUAL", **stores[form])
    ran = operator.run("MUTUAL", config, "brokers", "list", "-o", "json")
    assert ran.code == 0, ran.err


FAILURES = {
    "plaintext to a TLS port": ("TLS", lambda k: k.client("PLAINTEXT"), "security.protocol=SSL or SASL_SSL"),
    "plaintext to a login port": ("LOGIN", lambda k: k.client("PLAINTEXT"), "security.protocol=SASL_PLAINTEXT"),
    "TLS to a plaintext port": ("PLAINTEXT", lambda k: k.client("TLS"), "does not speak TLS"),
    "login at a plaintext port": ("PLAINTEXT", lambda k: k.login("LOGIN", "PLAIN"), "asks for no login"),
    "login at a TLS port without one": ("TLS", lambda k: k.login("SAFE", "PLAIN"), "asks for no login"),
    "login without TLS at a TLS port": ("SAFE", lambda k: k.login("LOGIN", "PLAIN"), "security.protocol=SASL_SSL"),
    "TLS without login": ("SAFE", lambda k: k.client("TLS"), "this listener asks for a login: it has PLAIN, "),
    "a CA that is not known": ("TLS", lambda k: k.client("TLS", ssl_truststore_location=other_ca(k)), "trust store"),
    "a CA before it was renewed": ("TLS", lambda k: k.client("TLS", ssl_truststore_location=old_ca(k)), "another key"),
    "no client certificate": ("MUTUAL", lambda k: k.client("TLS"), "asks for one and got none"),
    "another CA's client certificate": ("MUTUAL", lambda k: k.client("TLS", **others_key(k)), "refuses this client's"),
    "no protocol in common": ("TLS", lambda k: k.client("TLS", ssl_enabled_protocols="TLSv1.1"), "is left to use"),
    "no version in common": (
        "NAMED",
        lambda k: k.client("NAMED", ssl_enabled_protocols="TLSv1.2"),
        "version in common",
    ),
    "mechanism not enabled": ("ONLYPLAIN", lambda k: k.login("ONLYPLAIN", "SCRAM-SHA-256"), "this listener has PLAIN"),
    "wrong password, PLAIN": ("LOGIN", lambda k: k.login("LOGIN", "PLAIN", "alice", WRONG), "alice by PLAIN"),
    "wrong password, SCRAM": (
        "SAFE",
        lambda k: k.login("SAFE", "SCRAM-SHA-512", "alice", WRONG),
        "invalid credentials",
    ),
    "user unknown": ("SAFE", lambda k: k.login("SAFE", "SCRAM-SHA-256", "nobody", WRONG), "nobody by SCRAM-SHA-256"),
    "expired": ("EXPIRED", lambda k: k.client("EXPIRED"), "the certificate has expired"),
    "not yet valid": ("FUTURE", lambda k: k.client("FUTURE"), "not valid yet"),
    "another host name": ("NAMED", lambda k: k.client("NAMED"), "it has broker.example"),
    "a suite of ciphers that the broker lacks": (
        "TLS",
        lambda k: k.client("TLS", ssl_cipher_suites="TLS_RSA_WITH_AES_128_CBC_SHA", ssl_enabled_protocols="TLSv1.2"),
        "no cipher suite",
    ),
    "issuer unreachable": ("LOGIN", lambda k: k.client("LOGIN", **absent_issuer(k)), "127.0.0.1:1"),
    "token file missing": ("LOGIN", lambda k: k.client("LOGIN", **absent_token(k)), "none.jwt"),
    "token expired": ("LOGIN", lambda k: k.client("LOGIN", **old_token()), "invalid_token"),
}
WRONG = "wr0ng-Secr3t"


def other_ca(kafka: SecuredKafka) -> str:
    path = kafka.folder / "other-ca.pem"
    path.write_text(Authority("another CA").pem)
    return str(path)


def old_ca(kafka: SecuredKafka) -> str:
    path = kafka.folder / "old-ca.pem"
    path.write_text(Authority().pem)
    return str(path)


def others_key(kafka: SecuredKafka) -> dict[str, str]:
    store = Authority("another CA").sign("admin").write_pem(kafka.folder / "other.pem")
    return {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(store)}


def old_token() -> dict[str, str]:
    options = {"unsecuredLoginStringClaim_sub": "admin", "unsecuredLoginNumberClaim_exp": "1000"}
    return {"sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": jaas("OAUTHBEARER", **options)}


def absent_issuer(kafka: SecuredKafka) -> dict[str, str]:
    options = {"clientId": "me", "clientSecret": WRONG}
    return {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_jaas_config": jaas("OAUTHBEARER", **options),
        "sasl_oauthbearer_token_endpoint_url": "http://127.0.0.1:1/token",
    }


def absent_token(kafka: SecuredKafka) -> dict[str, str]:
    return {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_jaas_config": jaas("OAUTHBEARER", unsecuredLoginStringClaim_sub="me"),
        "sasl_oauthbearer_token_endpoint_url": f"file://{kafka.folder}/none.jwt",
    }


def is_on_page(message: str) -> bool:
    """Whether the guide's table has a row for a message; ``…`` stands for anything."""
    page = (ROOT / "docs/guides/connect-to-a-secured-cluster.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+?) \| [234] \| .+ \|$", page, re.MULTILINE)
    return any(re.match(re.escape(row).replace("…", ".*"), message) for row in rows)


@pytest.mark.parametrize("name", FAILURES)
def test_what_a_failure_says(name: str, operator: Operator) -> None:
    listener, make, said = FAILURES[name]
    began = time.monotonic()
    ran = operator.run(listener, make(operator.kafka), "topics", "list", "-o", "json", "--timeout", "20")
    took_s = time.monotonic() - began
    message = f"{ran.error['message']} | {ran.error['hint']}"
    assert said in message
    assert (ran.code, operator.kafka.address(listener) in ran.error["message"]) == (3, True), message
    assert ran.error["kind"] == "authentication", message
    assert took_s < 10, message
    assert is_on_page(ran.error["message"]), message
    assert "Secr3t" not in ran.out + ran.err
    print(name, "→", message)


def test_the_check_of_the_host_name_can_be_turned_off(operator: Operator) -> None:
    config = operator.kafka.client("NAMED", ssl_endpoint_identification_algorithm="")
    assert operator.run("NAMED", config, "topics", "list").code == 0


def test_a_long_command_logs_in_again(operator: Operator) -> None:
    """The broker ends connections whose login is older than two seconds, unless they have logged in again."""
    config, topic = operator.kafka.login("SHORT", "SCRAM-SHA-512"), "paced"
    assert operator.run("SHORT", config, "topics", "create", topic).code == 0
    ran = operator.run(
        "SHORT", config, "perf", "producer", "--topic", topic, "--num-records", "60", "--record-size", "10",
        "--throughput", "10", "-v", "-o", "json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "lost" not in ran.err and ran.err.count("connected to") <= 2, ran.err


def test_a_dashboard_logs_in_again(operator: Operator) -> None:
    """It reads on over four lives of a login, and no reading of it fails."""
    kafka = operator.kafka
    naming = Naming(bootstrap_servers=kafka.address("SHORT"), command_config=str(kafka.login("SHORT", "SCRAM-SHA-256")))

    async def watch() -> list[Frame]:
        feed, frames = LiveFeed(resolve_target(naming, {}, kafka.folder), interval_s=0.5), []
        await feed.start()
        try:
            async with asyncio.timeout(120):
                async for frame in feed.frames():
                    if frame.is_settled([Stage.METADATA, Stage.OFFSETS, Stage.LOG_DIRS]):
                        frames.append(frame)
                    if frames and frame.at_ms - frames[0].at_ms > 4 * SHORT_MS:
                        return frames
        finally:
            await feed.close()
        raise AssertionError("the feed ended")

    frames = asyncio.run(watch())
    statuses = [status for frame in frames for status in frame.stages.values() if status.source is not None]
    assert {status.error for status in statuses} == {""}
    assert {frame.link(Side.WIRE).state for frame in frames} == {LinkState.CONNECTED}
    assert not [word.trouble for frame in frames for word in frame.words.values() if word.trouble]
    read_at = [frame.stage(Stage.METADATA).read_at_ms or 0 for frame in frames]
    assert read_at[-1] - read_at[0] > 3 * SHORT_MS


def test_records_and_groups_over_tls_and_login(operator: Operator) -> None:
    config, topic = operator.kafka.login("SAFE", "SCRAM-SHA-256"), "orders"

    def done(*words: str, stdin: str = "") -> Ran:
        ran = operator.run("SAFE", config, *words, stdin=stdin)
        assert ran.code in (0, 1) if words[0] == "lag" else ran.code == 0, (words, ran.err)
        return ran

    done("topics", "create", topic, "--partitions", "2")
    done("produce", topic, stdin="one\ntwo\nthree\n")
    read = done("consume", topic, "--from-beginning", "--max-messages", "3", "-o", "jsonl")
    assert sorted(re.findall("one|two|three", read.out)) == ["one", "three", "two"]
    done("perf", "producer", "--topic", topic, "--num-records", "1000", "--record-size", "100")
    done("perf", "consumer", "--topic", topic, "--messages", "1000")
    done("groups", "reset-offsets", "--group", "readers", "--topic", topic, "--to-earliest", "--execute", "--yes")
    assert [row["group"] for row in done("lag", "--group", "readers", "-o", "json").json] == ["readers"]
    assert done("cluster", "health", "-o", "json").json["status"] == "ok"
    done("plan", "rebalance")
    done("configs", "alter", "--topic", topic, "--add-config", "retention.ms=1000", "--yes")
    picture = operator.kafka.folder / "top.svg"
    done("top", "--screenshot", str(picture))
    assert "healthy" in picture.read_text()


def test_znodes_and_brokers_by_the_secured_listener(operator: Operator) -> None:
    config = operator.kafka.login("SAFE", "PLAIN")
    words = ("--zookeeper", operator.kafka.zookeeper, "--command-config", str(config))
    ran = in_process("brokers", "log-dirs", *words, "-o", "json", capture=operator.capture)
    assert ran.code == 0, ran.err


def broken_store(kafka: SecuredKafka, kind: str) -> dict[str, str]:
    """Return properties whose stores cannot be used."""
    locked = kafka.ca.sign("admin").write_pem(kafka.folder / f"broken-{kind.replace(' ', '-')}.pem", "pem-Secr3t")
    pem = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(locked)}
    trust = {"ssl_truststore_location": str(kafka.folder / "trust.JKS"), "ssl_truststore_type": "JKS"}
    (kafka.folder / "garbage.jks").write_bytes(b"no store at all")
    return {
        "wrong key password": pem | {"ssl_key_password": WRONG},
        "key password missing": pem,
        "wrong store password": trust | {"ssl_truststore_password": WRONG},
        "unreadable store": {"ssl_truststore_location": str(kafka.folder / "none.pem")},
        "unknown store type": {"ssl_truststore_type": "BKS"},
        "no store at all": trust | {"ssl_truststore_location": str(kafka.folder / "garbage.jks")},
    }[kind]


STORES = {
    "wrong key password": ("the password of the key", "ssl.key.password"),
    "key password missing": ("is encrypted", "ssl.key.password"),
    "wrong store password": ("password", "ssl.truststore"),
    "unreadable store": ("cannot be read", "none.pem"),
    "unknown store type": ("is not one of JKS, PKCS12, PEM", "ssl.truststore.type=BKS"),
    "no store at all": ("garbage.jks", "ssl.truststore.location"),
}


@pytest.mark.parametrize("kind", STORES)
def test_what_a_store_that_cannot_be_used_says(
    kind: str, stores: dict[str, dict[str, str]], operator: Operator
) -> None:
    """Nothing was sent, and the file has to be corrected: that is a wrong use."""
    ran = operator.run("MUTUAL", operator.kafka.client("MUTUAL", **broken_store(operator.kafka, kind)), *LIST)
    message = f"{ran.error['message']} | {ran.error['hint']}"
    print(kind, "→", message)
    assert (ran.code, ran.error["kind"]) == (2, "usage"), message
    assert all(part in message for part in STORES[kind]), message
    assert is_on_page(ran.error["message"]), message
    assert "Secr3t" not in ran.out + ran.err


LIST = ("topics", "list", "-o", "json")
DENIED = {
    "cluster": (("topics", "create", "hers", "--partitions", "1", "--replication-factor", "1"), "AUTHORIZATION_FAILED"),
    "topic": (("topics", "describe", "secret"), "TOPIC_AUTHORIZATION_FAILED"),
    "group": (("groups", "describe", "--group", "secret-readers"), "GROUP_AUTHORIZATION_FAILED"),
    "rules": (("acls", "list"), "CLUSTER_AUTHORIZATION_FAILED"),
    "transactional id": (("transactions", "describe", "secret-id"), "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    "settings": (("configs", "describe", "--topic", "secret"), "TOPIC_AUTHORIZATION_FAILED"),
}


@pytest.mark.parametrize("what", DENIED)
def test_who_is_known_and_not_allowed(what: str, operator: Operator) -> None:
    admin = operator.kafka.login("SAFE", "SCRAM-SHA-512")
    operator.run("SAFE", admin, "topics", "create", "secret", "--partitions", "1", "--if-not-exists")
    words, code = DENIED[what]
    ran = operator.run("SAFE", operator.kafka.login("SAFE", "SCRAM-SHA-512", "alice"), *words, "-o", "json")
    message = f"{ran.error['message']} | {ran.error['hint']}"
    print(what, "→", message)
    assert (ran.code, ran.error["kind"]) == (4, "authorization"), message
    assert code in message, message
    assert is_on_page(ran.error["message"]), message


def test_half_of_the_brokers_have_a_certificate_of_a_new_ca(operator: Operator, tmp_path: Path) -> None:
    kafka, new = operator.kafka, Authority("the new CA")
    store = new.sign("broker", [kafka.host]).write_pem(tmp_path / "new.pem")
    plain, second = f"{kafka.host}:{FIRST_PORT + 50}", f"{kafka.host}:{FIRST_PORT + 51}"
    with ApacheKafkaBroker(
        tmp_path,
        broker_id=1,
        host=kafka.host,
        port=FIRST_PORT + 50,
        zookeeper_connect=kafka.zookeeper,
        overrides={
            "listeners": f"PLAINTEXT://{plain},SECOND://{second}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
        },
        shares_jvm=True,
    ):
        config = kafka.client("SECOND")
        made = operator.run("SECOND", config, "topics", "create", "on-both", "--replica-assignment", "0,1")
        assert made.code == 0, made.err
        ran = operator.run("SECOND", config, "offsets", "--topic", "on-both", "-o", "json")
        assert (ran.code, [row["partition"] for row in ran.json if row["error"]]) == (1, [1]), ran.err
        assert f"no CA in the trust store has signed the certificate: {second}" in ran.json[1]["error"]
        walked = operator.run("SECOND", config, "doctor", "-o", "json")
        last = walked.json[-1]
        assert (walked.code, last["name"], last["status"], last["needed_for"]) == (3, "TLS", "failed", second)
        assert "ssl.truststore.location" in last["how_to_get"]
        both = tmp_path / "both.pem"
        both.write_text(kafka.ca.pem + new.pem)
        config = kafka.client("SECOND", ssl_truststore_location=str(both))
        assert operator.run("SECOND", config, "offsets", "--topic", "on-both").code == 0


def test_a_listener_that_is_advertised_at_the_port_of_another_protocol(operator: Operator) -> None:
    ran = operator.run("CROSSED", operator.kafka.client("CROSSED"), "doctor", "-o", "json")
    last = ran.json[-1]
    assert (ran.code, last["needed_for"]) == (3, operator.kafka.address("PLAINTEXT"))
    assert last["found"] == "what listens there does not speak TLS (broker 0 advertises this address)"


def test_the_walk_of_the_doctor(operator: Operator) -> None:
    config = operator.kafka.login("SAFE", "SCRAM-SHA-512")
    ran = operator.run("SAFE", config, "doctor", "-o", "json")
    assert ran.code == 0, ran.err
    names = [row["name"] for row in ran.json]
    assert names == ["broker name", "broker port", "TLS", "login", "API versions", "rights", "every broker"]
    steps = {row["name"]: row["found"] for row in ran.json}
    assert "TLSv1.3, certificate for broker.example" in steps["TLS"]
    assert steps["login"].startswith("admin by SCRAM-SHA-512") and "Alter" in steps["rights"]
    wrong = operator.run("SAFE", operator.kafka.login("SAFE", "SCRAM-SHA-512", "alice", WRONG), "doctor", "-o", "json")
    assert [(row["name"], row["status"]) for row in wrong.json[-2:]] == [("TLS", "ok"), ("login", "failed")]
    assert (wrong.code, "check username and password" in wrong.json[-1]["how_to_get"]) == (3, True)
    closed = in_process("doctor", "-b", f"{operator.kafka.host}:1", "-o", "json", capture=operator.capture)
    assert (closed.code, closed.json[-1]["name"], closed.json[-1]["status"]) == (3, "broker port", "failed")
    nameless = in_process("doctor", "-b", "no-such-host.invalid:1", "-o", "json", capture=operator.capture)
    assert (nameless.code, nameless.json[-1]["name"]) == (3, "broker name")
    znodes = in_process(
        "doctor", "--zookeeper", operator.kafka.zookeeper, "-b", operator.kafka.address("PLAINTEXT"), "-o", "json",
        capture=operator.capture,
    )  # fmt: skip
    assert znodes.code == 0
    assert [row["name"] for row in znodes.json][:4] == ["ZooKeeper name", "ZooKeeper port", "ZooKeeper login", "znodes"]
