"""``klamm brokers metrics`` of genuine brokers whose JMX asks for TLS, a login and a client's certificate."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from certificates import Authority, Signed
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from kafka_cluster import kafka_cluster
from klamm_program import Ran, in_process, properties_file

from engine.admin.brokers.metrics import Teller
from engine.admin.cluster.client_properties import client_properties
from engine.admin.cluster.target import ClusterTarget, Origin, parse_addresses
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.live_feed import LiveFeed
from engine.local.addresses import own_loopback_address
from engine.local.jmx import read_jmx
from engine.local.zookeeper import EmbeddedZooKeeper


def free_everywhere() -> int:
    """Return a port for a plain registry beside TLS: it listens at all addresses, where any other test may."""
    while True:
        port = random.SystemRandom().randint(10_000, 19_999)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


PORTS, JMX = (21192, 21193), (21300, free_everywhere())
STORE, PASSWORD = "st0re-Secr3t", "jmx:s3cr3t/@"
"""The login's password has what a URL must not."""

LOGIN, TLS = "monitor:${env:KLAMM_JMX_PASSWORD}@", "jmxs://{login}{{host}}:21300"
"""Broker 0 speaks TLS from the registry on. Broker 1 has a plain registry, which is Java's default, and wants a key."""


class Watched:
    """The running cluster, and files of its clients."""

    def __init__(self, folder: Path, host: str, zookeeper: str, ca: Authority) -> None:
        self.folder, self.host, self.zookeeper, self.ca = folder, host, zookeeper, ca
        self.bootstrap = f"{host}:{PORTS[0]}"

    def properties(self, **entries: str) -> Path:
        return properties_file(self.folder, entries)

    def trusts(self) -> dict[str, str]:
        return {"ssl_truststore_location": str(self.folder / "ca.pem"), "ssl_truststore_type": "PEM"}

    def has_key(self) -> dict[str, str]:
        store = {"location": str(self.folder / "client.p12"), "type": "PKCS12", "password": STORE}
        return self.trusts() | {f"ssl_keystore_{name}": value for name, value in store.items()}

    def read(self, capture: pytest.CaptureFixture[str], broker: int, url: str | None, config: Path | None) -> Ran:
        where = ["--zookeeper", self.zookeeper] if url is None else ["-b", self.bootstrap, "--metrics-url", url]
        named = [] if config is None else ["--command-config", str(config)]
        return in_process(
            "brokers", "metrics", str(broker), *where, *named, "--timeout", "60", "-o", "json", capture=capture
        )


def store_of(path: Path, signed: Signed) -> None:
    encryption = BestAvailableEncryption(STORE.encode())
    path.write_bytes(serialize_key_and_certificates(b"own", signed.key, signed.certificate, None, encryption))


def private(path: Path, text: str) -> str:
    """Write a file that Java's agent accepts: nobody else may read it."""
    path.touch(0o600)
    path.write_text(text)
    return str(path)


def secured(folder: Path, store: str) -> dict[str, str]:
    """Return the settings of a broker's agent."""
    stores = {
        "keyStore": folder / store, "keyStorePassword": STORE, "trustStore": folder / "trust.p12",
        "trustStorePassword": STORE,
    }  # fmt: skip
    lines = "".join(f"javax.net.ssl.{name}={value}\n" for name, value in stores.items())
    return {
        "ssl": "true",
        "ssl.config.file": private(folder / f"{store}.properties", lines),
        "authenticate": "true",
        "password.file": private(folder / "jmx.password", f"monitor {PASSWORD}\n"),
        "access.file": private(folder / "jmx.access", "monitor readonly\n"),
    }


@pytest.fixture(scope="module")
def watched(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder, host, ca = tmp_path_factory.mktemp("jmx"), own_loopback_address(), Authority()
    (folder / "ca.pem").write_text(ca.pem)
    (folder / "other.pem").write_text(Authority("somebody else").pem)
    store_of(folder / "broker.p12", ca.sign("broker", [host]))
    store_of(folder / "client.p12", ca.sign("client"))
    trusted = [PKCS12Certificate(ca.own.certificate, b"ca")]
    (folder / "trust.p12").write_bytes(serialize_java_truststore(trusted, BestAvailableEncryption(STORE.encode())))
    agents: tuple[Mapping[str, str], ...] = (
        {"registry.ssl": "true", "rmi.port": f"{JMX[0]}"},
        {"ssl.need.client.auth": "true"},
    )
    own = secured(folder, "broker.p12")
    each = [{"jmx_port": port, "jmx_secured": {**own, **agent}} for port, agent in zip(JMX, agents, strict=True)]
    with kafka_cluster(
        folder, 2, PORTS[0], {}, host=host, chroot="/kafka", each=each, shares_jvm=False, zookeeper=zookeeper
    ) as running:
        yield Watched(folder, host, running.zookeeper, ca)


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLAMM_JMX_PASSWORD", PASSWORD)


def test_a_login_over_tls(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    ran = watched.read(capsys, 0, TLS.format(login=LOGIN), watched.properties(**watched.trusts()))
    assert ran.code == 0, ran.out + ran.err
    (row,) = ran.json
    assert (row["source"], row["reason"], row["where"]) == ("jmx", None, f"jmxs://{watched.host}:{JMX[0]}")
    assert row["bytes_in"]["total"] is not None


def test_a_broker_that_wants_a_key_too(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    ran = watched.read(capsys, 1, f"jmx://{LOGIN}{{host}}:{JMX[1]}", watched.properties(**watched.has_key()))
    assert ran.code == 0, ran.out + ran.err
    assert (ran.json[0]["source"], ran.json[0]["reason"]) == ("jmx", None)


NO_KEY = "it wants a client's certificate that it trusts: set ssl.keystore.location"
UNTRUSTED = "add its CA to ssl.truststore.location"
FAILURES = {
    "a wrong password": (0, TLS.format(login="monitor:wr0ng@"), "trusts", "it refuses the login"),
    "an unknown user": (0, TLS.format(login="nobody:wr0ng@"), "trusts", "it refuses the login"),
    "no login": (0, TLS.format(login=""), "trusts", "it wants a login"),
    "plain to a port with TLS": (0, f"jmx://{LOGIN}{{host}}:{JMX[0]}", "trusts", "for that write jmxs://"),
    "TLS to a plain port": (0, f"jmxs://{LOGIN}{{host}}:{PORTS[0]}", "trusts", "does not speak TLS"),
    "TLS to a plain registry": (1, f"jmxs://{LOGIN}{{host}}:{JMX[1]}", "has_key", "does not speak TLS"),
    "nobody's CA": (0, TLS.format(login=LOGIN), None, UNTRUSTED),
    "another CA": (0, TLS.format(login=LOGIN), "other", UNTRUSTED),
    "no key": (1, f"jmx://{LOGIN}{{host}}:{JMX[1]}", "trusts", NO_KEY),
    "the port of ZooKeeper, without anything": (1, None, None, UNTRUSTED),
    "the port of ZooKeeper, without a login": (1, None, "has_key", "it wants a login"),
    "no store": (0, TLS.format(login=LOGIN), "missing", "cannot be read"),
}


@pytest.mark.parametrize(("broker", "url", "config", "why"), FAILURES.values(), ids=FAILURES)
def test_what_fails_is_said(
    watched: Watched, broker: int, url: str | None, config: str | None, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = {
        "trusts": watched.trusts(),
        "has_key": watched.has_key(),
        "other": watched.trusts() | {"ssl_truststore_location": str(watched.folder / "other.pem")},
        "missing": watched.trusts() | {"ssl_truststore_location": str(watched.folder / "missing.pem")},
    }
    ran = watched.read(capsys, broker, url, None if config is None else watched.properties(**stores[config]))
    print(ran.json[0]["reason"])
    assert (ran.code, why in ran.json[0]["reason"]) == (1, True), ran.json
    output = ran.out + ran.err
    assert not [secret for secret in (PASSWORD, STORE, "wr0ng") if secret in output]


@contextmanager
def tls_server(host: str, store: Path) -> Iterator[int]:
    """Shake hands with whoever comes, listen to them once, and say nothing; yield the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    with socket.create_server((host, 0)) as server:

        def serve() -> None:
            # The server is shut down at the end.
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with suppress(OSError), client, context.wrap_socket(client, server_side=True) as secured:
                        secured.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)


@pytest.mark.parametrize(
    ("name", "days", "checks", "why"),
    [
        ("broker.example", (-1, 30), "https", "for another host name"),
        ("broker.example", (-1, 30), "", "no registry of JMX"),
        (None, (-9, -2), "https", "its certificate has expired"),
    ],
    ids=["another name", "a name that nobody checks", "expired"],
)
def test_a_certificate_that_is_not_accepted(
    watched: Watched,
    name: str | None,
    days: tuple[int, int],
    checks: str,
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    signed = watched.ca.sign("broker", [name or watched.host], days=days)
    store = signed.write_pem(watched.folder / "server.pem")
    entries = watched.trusts() | {"ssl_endpoint_identification_algorithm": checks}
    with tls_server(watched.host, store) as port:
        ran = watched.read(capsys, 0, f"jmxs://{LOGIN}{{host}}:{port}", watched.properties(**entries))
    assert why in ran.json[0]["reason"]


def test_a_reference_that_leads_nowhere(
    watched: Watched, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KLAMM_JMX_PASSWORD")
    ran = watched.read(capsys, 0, TLS.format(login=LOGIN), None)
    assert (ran.code, "KLAMM_JMX_PASSWORD" in ran.err) == (2, True), ran.err


def test_a_dashboard_reads_it(watched: Watched) -> None:
    entries = {name.replace("_", "."): value for name, value in watched.trusts().items()}
    target = ClusterTarget(
        "kafka", Origin.OPTIONS, watched.zookeeper, parse_addresses(watched.bootstrap),
        client_properties=client_properties(entries, "here"), metrics=f"jmxs://{LOGIN}{{host}}:2130{{id}}",
    )  # fmt: skip

    async def read() -> Frame:
        feed = LiveFeed(target, interval_s=0.5, read_jmx=read_jmx)
        await feed.start()
        try:
            async with asyncio.timeout(60):
                async for frame in feed.frames():
                    if 0 in frame.figures and frame.figures[0].told_by is not None:
                        return frame
                    feed.refresh([Stage.METRICS])
        finally:
            await feed.close()
        raise AssertionError("the feed ended")

    assert asyncio.run(read()).figures[0].told_by is Teller.JMX
