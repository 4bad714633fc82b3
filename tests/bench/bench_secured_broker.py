"""One secured broker of ours beside one of Apache Kafka 3.9.1: the rows of ``bench broker`` over SSL and SASL_SSL.

Both brokers have the same certificate and speak TLS 1.3 with one cipher suite, which the bench checks; with SASL_SSL,
clients log in with SCRAM. Before, connections a second: with full handshakes, and with such as resume a session.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import statistics
import struct
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from apache_kafka import ApacheKafkaBroker
from bench_broker import ONLY, ROUNDS, SCALE, WARM_UPS, Broker, KlammBroker, Way, cpu_seconds, measure, row
from certificates import Authority
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from crc32c import crc32c

from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.frames import encode_request
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

SUITE = "TLS_AES_256_GCM_SHA384"
"""Java and OpenSSL prefer it by themselves."""
OLDER_SUITE = "ECDHE-ECDSA-AES256-GCM-SHA384"
USER, PASSWORD = "alice", "al1ce-Secr3t"
OFFSETS = {"SSL": 1, "SASL_SSL": 2}
"""Each listener's port after the one of PLAINTEXT."""
CPU_GOAL = "<= 0.8"
CONNECTIONS = int(4_000 * SCALE)
CLIENT_THREADS = 4
CHUNK_BYTES = 128 * 1024
SMALL_RECORDS, SMALL_RECORD_BYTES = 66, 118
"""As librdkafka sends a batch of 73 records of 100 bytes."""
ANSWER_BYTES = 60
"""Of a Produce with one partition."""
_BASE_OFFSET = struct.Struct(">q")


def main() -> None:
    """Start ZooKeeper and both brokers, measure, and stop everything."""
    folder, host, ca = Path(tempfile.mkdtemp(prefix="klamm-bench-")), own_loopback_address(), Authority()
    (folder / "ca.pem").write_text(ca.pem)
    store = ca.sign("broker", [host]).write_pem(folder / "broker.pem")
    print(f"{'':44} {'klamm':>12} {'Kafka 3.9.1':>12} {'':12} {'ratio':>7}")
    try:
        with EmbeddedZooKeeper(host=host) as zookeeper:
            connect = zookeeper.connect_string
            ours = KlammBroker(folder / "klamm", host, 19092, f"{connect}/klamm", _settings(host, 19092, store))
            kafka = ApacheKafkaBroker(
                folder / "kafka", broker_id=0, host=host, port=19192, zookeeper_connect=f"{connect}/kafka",
                overrides=_settings(host, 19192, store),
            )  # fmt: skip
            brokers: dict[str, Broker] = {"klamm": ours, "kafka": kafka}
            try:
                for broker in brokers.values():
                    broker.start()
                for broker in brokers.values():
                    _make_user(broker)
                _measure_both(brokers, folder / "ca.pem", store)
            finally:
                ours.stop()
                kafka.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settings(host: str, port: int, store: Path) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    secured = [f"{name}://{host}:{port + offset}" for name, offset in OFFSETS.items()]
    return {
        "listeners": ",".join([f"PLAINTEXT://{host}:{port}", *secured]),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "ssl.cipher.suites": f"{SUITE},TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": module,
    }


def _make_user(broker: Broker) -> None:
    change = UserScramCredentialUpsertion(
        USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.alter_user_scram_credentials([change])[USER].result(30)


def _address(broker: Broker, protocol: str) -> tuple[str, int]:
    host, _, port = broker.bootstrap.rpartition(":")
    return host, int(port) + OFFSETS[protocol]


def _client(protocol: str, ca: Path, broker: Broker) -> dict[str, str]:
    host, port = _address(broker, protocol)
    settings = {
        "bootstrap.servers": f"{host}:{port}",
        "security.protocol": protocol.lower(),
        "ssl.ca.location": str(ca),
    }
    if protocol == "SASL_SSL":
        settings |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD}
    return settings


def _measure_both(brokers: dict[str, Broker], ca: Path, store: Path) -> None:
    context = ssl.create_default_context(cafile=str(ca))
    _print_bare_cost(context, store, _address(brokers["klamm"], "SSL")[0])
    older = ssl.create_default_context(cafile=str(ca))
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    for name, broker in brokers.items():
        for suite, version, own in ((SUITE, "TLSv1.3", context), (OLDER_SUITE, "TLSv1.2", older)):
            with _connected(broker, own, None) as tls:
                cipher = tls.cipher()
            assert cipher is not None and cipher[:2] == (suite, version), (name, cipher)
    if not ONLY or "connections" in ONLY:
        _measure_all_connections(brokers, context, older)
    measure(brokers, [Way(protocol, partial(_client, protocol, ca), CPU_GOAL) for protocol in OFFSETS])


def _measure_all_connections(brokers: dict[str, Broker], context: ssl.SSLContext, older: ssl.SSLContext) -> None:
    _measure_connections(brokers, context, "a full handshake, 1.3", resumes=False)
    _measure_connections(brokers, context, "a ticket, 1.3", resumes=True)
    _measure_connections(brokers, older, "a ticket, 1.2", resumes=True)


def _measure_connections(brokers: dict[str, Broker], context: ssl.SSLContext, label: str, *, resumes: bool) -> None:
    """Print connections a second, and the broker's CPU for each: TLS handshake, one ApiVersions request, close."""
    rates: dict[str, list[float]] = {name: [] for name in brokers}
    costs: dict[str, list[float]] = {name: [] for name in brokers}
    shares: dict[str, float] = {}
    for number in range(WARM_UPS + ROUNDS):
        for name, broker in brokers.items():
            before, began = cpu_seconds(broker.process.pid), time.perf_counter()
            shares[name] = _connect_many(broker, context, resumes=resumes) / CONNECTIONS * 100
            if number >= WARM_UPS:
                rates[name].append(CONNECTIONS / (time.perf_counter() - began))
                costs[name].append((cpu_seconds(broker.process.pid) - before) / CONNECTIONS * 1e6)
    rate, cost = ({name: statistics.median(seen[name]) for name in seen} for seen in (rates, costs))
    row(f"connections with {label}", rate["klamm"], rate["kafka"], "1/s", ">= 1.0")
    row("  broker CPU", cost["klamm"], cost["kafka"], "us each", CPU_GOAL)
    if resumes:
        row("  of them resumed", shares["klamm"], shares["kafka"], "%", "all")


def _connect_many(broker: Broker, context: ssl.SSLContext, *, resumes: bool) -> int:
    """Return how many connections the broker has let resume a session."""
    failures: list[Exception] = []
    resumed: list[bool] = []

    def connect() -> None:
        session: ssl.SSLSession | None = None
        try:
            for _ in range(CONNECTIONS // CLIENT_THREADS):
                with _connected(broker, context, session) as tls:
                    resumed.append(bool(tls.session_reused))
                    session = tls.session if resumes else None
                    # Java lets nobody resume a session that ends without a word.
                    with suppress(OSError):
                        tls.unwrap()
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=connect) for _ in range(CLIENT_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(resumed)


def _connected(broker: Broker, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSocket:
    """Return a connection that has an answer: with TLS 1.3 the ticket of the next session comes before it."""
    host, port = _address(broker, "SSL")
    raw = socket.create_connection((host, port), timeout=30)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tls = context.wrap_socket(raw, server_hostname=host, session=session)
    tls.sendall(encode_request(ApiVersionsRequest(), 0, 1, "bench"))
    assert tls.recv(16_384)
    return tls


def _print_bare_cost(context: ssl.SSLContext, store: Path, host: str) -> None:
    """Print what OpenSSL itself costs, called as the broker calls it, and a loop that does no more than any broker in
    Python has to.
    """
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(store)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    chunk, room, rounds = memoryview(bytes(CHUNK_BYTES)), memoryview(bytearray(CHUNK_BYTES)), 2_000
    sealing_s = opening_s = 0.0
    for _ in range(rounds):
        began = time.thread_time()
        rest = chunk
        while rest:
            rest = rest[server.write(rest) :]
        records = to_client.read()
        sealed = time.thread_time()
        to_client.write(records)
        filled = 0
        while filled < CHUNK_BYTES:
            filled += client.read(CHUNK_BYTES - filled, room[filled:])
        sealing_s += sealed - began
        opening_s += time.thread_time() - sealed
    gb = rounds * CHUNK_BYTES / 1e9
    print(f"OpenSSL alone: encrypting {sealing_s / gb:.2f} s/GB, decrypting {opening_s / gb:.2f} s/GB of CPU")
    decrypted_us, served_us = _bare_loop_us(client, server, to_server, to_client)
    print(f"8 KB in {SMALL_RECORDS} records, as librdkafka sends them, in a bare loop: {served_us:.0f} us of CPU")
    print(f"  decrypting them is {decrypted_us:.0f} us of it")


def _bare_loop_us(
    client: ssl.SSLObject, server: ssl.SSLObject, to_server: ssl.MemoryBIO, to_client: ssl.MemoryBIO
) -> tuple[float, float]:
    """Return what it takes to decrypt 8 KB, and to receive, decrypt, check, append and answer them, and no more."""
    near, far = socket.socketpair()
    received, room = memoryview(bytearray(CHUNK_BYTES)), memoryview(bytearray(CHUNK_BYTES))
    small, answer, batches = bytes(SMALL_RECORD_BYTES), bytes(ANSWER_BYTES), 2_000
    read = server._sslobj.read  # type: ignore[attr-defined]
    decrypted_s = served_s = 0.0
    with near, far, tempfile.TemporaryFile() as log:
        for number in range(batches):
            for _ in range(SMALL_RECORDS):
                client.write(small)
            far.sendall(to_server.read())
            began = time.thread_time()
            came = near.recv_into(received)
            decrypting = time.thread_time()
            to_server.write(received[:came])
            joined = b"".join(map(read, [SMALL_RECORD_BYTES] * SMALL_RECORDS))
            size = len(joined)
            room[:size] = joined
            decrypted_s += time.thread_time() - decrypting
            crc32c(room[:size])
            _BASE_OFFSET.pack_into(room, 0, number)
            os.pwrite(log.fileno(), room[:size], number * size)
            server.write(answer)
            near.send(to_client.read())
            served_s += time.thread_time() - began
            far.recv_into(received)
    return decrypted_s / batches * 1e6, served_s / batches * 1e6
