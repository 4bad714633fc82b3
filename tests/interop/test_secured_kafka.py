"""klamm against a secured Apache Kafka: each security protocol, mechanism and form of store, and what failures say."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from klamm_program import Ran, in_process
from secured_kafka import SecuredKafka, jaas, secured_kafka

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        yield running


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
    assert [one["id"] for one in ran.json] == [0]


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
            "-storetype", kind, "-storepass", "trust-Secr3t")  # fmt: skip
    jks = folder / "admin.jks"
    run("keytool", "-importkeystore", "-noprompt", "-srckeystore", p12, "-srcstoretype", "PKCS12", "-srcstorepass",
        "store-Secr3t", "-destkeystore", jks, "-deststoretype", "JKS", "-deststorepass", "store-Secr3t",
        "-srcalias", "admin", "-destkeypass", "key-Secr3t")  # fmt: skip
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
    "plaintext to a TLS port": ("TLS", lambda k: k.client("PLAINTEXT"), "--command-config"),
    "plaintext to a login port": ("LOGIN", lambda k: k.client("PLAINTEXT"), "--command-config"),
    "TLS to a plaintext port": ("PLAINTEXT", lambda k: k.client("TLS"), "does not speak TLS"),
    "login at a plaintext port": ("PLAINTEXT", lambda k: k.login("LOGIN", "PLAIN"), "asks for no login"),
    "login at a TLS port without one": ("TLS", lambda k: k.login("SAFE", "PLAIN"), "asks for no login"),
    "login without TLS at a TLS port": ("SAFE", lambda k: k.login("LOGIN", "PLAIN"), "security.protocol"),
    "TLS without login": ("SAFE", lambda k: k.client("TLS"), "--command-config"),
    "a CA that is not known": ("TLS", lambda k: k.client("TLS", ssl_truststore_location=other_ca(k)), "trust store"),
    "no client certificate": ("MUTUAL", lambda k: k.client("TLS"), "asks for one and got none"),
    "another CA's client certificate": ("MUTUAL", lambda k: k.client("TLS", **others_key(k)), "refuses this client's"),
    "no protocol in common": ("TLS", lambda k: k.client("TLS", ssl_enabled_protocols="TLSv1.1"), "is left to use"),
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
    "token expired": ("LOGIN", lambda k: k.client("LOGIN", **old_token()), "invalid_token"),
}
WRONG = "wr0ng-Secr3t"


def other_ca(kafka: SecuredKafka) -> str:
    path = kafka.folder / "other-ca.pem"
    path.write_text(Authority("another CA").pem)
    return str(path)


def others_key(kafka: SecuredKafka) -> dict[str, str]:
    store = Authority("another CA").sign("admin").write_pem(kafka.folder / "other.pem")
    return {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(store)}


def old_token() -> dict[str, str]:
    options = {"unsecuredLoginStringClaim_sub": "admin", "unsecuredLoginNumberClaim_exp": "1000"}
    return {"sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": jaas("OAUTHBEARER", **options)}


@pytest.mark.parametrize("name", FAILURES)
def test_what_a_failure_says(name: str, operator: Operator) -> None:
    listener, make, said = FAILURES[name]
    began = time.monotonic()
    ran = operator.run(listener, make(operator.kafka), "topics", "list", "-o", "json", "--timeout", "20")
    took_s = time.monotonic() - began
    told = f"{ran.error['message']} | {ran.error['hint']}"
    assert said in told
    assert (ran.code, operator.kafka.address(listener) in ran.error["message"]) == (3, True), told
    if "plaintext to" not in name and name != "TLS without login":
        assert ran.error["kind"] == "authentication", told
    assert took_s < 10, told
    assert "Secr3t" not in ran.out + ran.err
    print(name, "→", told)


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
