"""A good client over SASL_SSL while somebody attacks the broker's secured listeners, beside Apache Kafka 3.9.1.

The good client writes a record every 10 ms on a connection that it has, and logs in anew every 100 ms. The attacker is
a process of its own, at the lowest priority: it would have a machine of its own. Memory is the broker's anonymous
memory, its growth at worst. ``KLAMM_BENCH_ONLY`` names attacks, ``KLAMM_BENCH_SECONDS`` says how long each one takes.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import multiprocessing.connection
import os
import random
import resource
import shutil
import socket
import ssl
import statistics
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from apache_kafka import ApacheKafkaBroker, missing_for_kafka
from bench_broker import Broker, KlammBroker
from certificates import Authority
from hostile_clients import held_by
from openssl_peer import openssl_peer
from tabulate import tabulate
from wire_client import WireClient, create_topic, produce

from engine.kafka.client.sasl.exchange import Exchange, plain_exchange
from engine.kafka.client.sasl.scram import scram_exchange
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.frames import decode_response, encode_request
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

ONLY = os.environ.get("KLAMM_BENCH_ONLY", "")
SECONDS = float(os.environ.get("KLAMM_BENCH_SECONDS", "6"))
TOPIC, FULL = "orders", "full"
USER, PASSWORD = "alice", "al1ce-Secr3t"
SSL_PORT, SASL_PORT = 1, 2
"""Each listener's port after the one of PLAINTEXT."""
AT_ONCE = 50
HELD = 1000
LOGIN_BYTES_MAX = 524_288
"""The longest frame before a login, by ``sasl.server.max.receive.size``."""
HUGE_BYTES = 104_857_600
PATIENCE_S = 60.0


def main() -> None:
    """Start ZooKeeper and both brokers, attack each in turn, and stop everything."""
    folder, host, ca = Path(tempfile.mkdtemp(prefix="klamm-bench-")), own_loopback_address(), Authority()
    (folder / "ca.pem").write_text(ca.pem)
    store = ca.sign("broker", [host]).write_pem(folder / "broker.pem")
    try:
        with EmbeddedZooKeeper(host=host) as zookeeper:
            connect = zookeeper.connect_string
            settings = _settings(host, 19292, store)
            brokers: dict[str, Broker] = {
                "klamm": KlammBroker(folder / "klamm", host, 19292, f"{connect}/klamm", settings)
            }
            if not missing_for_kafka():
                brokers["Kafka"] = ApacheKafkaBroker(
                    folder / "kafka", broker_id=0, host=host, port=19392, zookeeper_connect=f"{connect}/kafka",
                    overrides=_settings(host, 19392, store),
                )  # fmt: skip
            try:
                for broker in brokers.values():
                    broker.start()
                    _fill(broker)
                _measure(brokers, ssl.create_default_context(cafile=str(folder / "ca.pem")))
            finally:
                for broker in brokers.values():
                    broker.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settings(host: str, port: int, store: Path) -> dict[str, str]:
    modules = "org.apache.kafka.common.security"
    return {
        "listeners": f"PLAINTEXT://{host}:{port},SSL://{host}:{port + SSL_PORT},SASL_SSL://{host}:{port + SASL_PORT}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
    }


def _fill(broker: Broker) -> None:
    for topic in (TOPIC, FULL):
        create_topic(broker.bootstrap, topic)
    with WireClient(broker.bootstrap) as client:
        records = _batch(900_000)
        for _ in range(20):
            assert produce(client, FULL, records).error_code == 0


def _batch(size: int) -> bytes:
    return encode_batch([Record(value=random.randbytes(size), timestamp_ms=int(time.time() * 1000))])


@dataclass
class Served:
    """How long a good client waited, in milliseconds."""

    requests_ms: list[float] = field(default_factory=list)
    logins_ms: list[float] = field(default_factory=list)

    def cells(self) -> list[str]:
        if not self.requests_ms or not self.logins_ms:
            return ["nothing"] * 4
        requests = sorted(self.requests_ms)
        p99 = requests[len(requests) * 99 // 100]
        return [f"{ms:.1f}" for ms in (p99, requests[-1], statistics.median(self.logins_ms), max(self.logins_ms))]


def _measure(brokers: dict[str, Broker], context: ssl.SSLContext) -> None:
    rows = []
    for broker in brokers.values():
        # The JVM compiles as it runs.
        _under_attack(broker, context, None)
    for name in [None, *ATTACKS]:
        if ONLY and name is not None and name not in ONLY.split(","):
            continue
        for engine, broker in brokers.items():
            load = os.getloadavg()[0]
            served, tried, grown_mb = _under_attack(broker, context, name)
            rows.append(
                [
                    name or "none",
                    engine,
                    tried["tries"],
                    tried["let in"],
                    *served.cells(),
                    f"{grown_mb:+.0f}",
                    f"{load:.0f}",
                ]
            )
            print(" | ".join(map(str, rows[-1])), flush=True)
    heads = ("attack", "", "tries", "let in", "p99, ms", "worst", "a login, ms", "worst", "MB", "load")
    print(tabulate(rows, heads, disable_numparse=True))


def _under_attack(broker: Broker, context: ssl.SSLContext, name: str | None) -> tuple[Served, Counter[str], float]:
    """Return how the good client was served, what the attacker did, and by how many MB the broker grew at worst."""
    pid, served, counts = broker.process.pid, Served(), Counter[str]()
    before = most = held_by(pid).anonymous_bytes
    host, _, port = broker.bootstrap.rpartition(":")
    spawning = multiprocessing.get_context("spawn")
    mine, theirs = spawning.Pipe()
    attacker = spawning.Process(target=_attack, args=(name, (host, int(port)), theirs))
    if name is not None:
        attacker.start()
        assert mine.poll(PATIENCE_S), "the attacker does not begin"
        mine.recv()
    with _good_clients(broker, context, served):
        end_s = time.monotonic() + SECONDS
        while time.monotonic() < end_s:
            time.sleep(0.05)
            most = max(most, held_by(pid).anonymous_bytes)
    if name is not None:
        # What it has open is the attack, so it stays until the good client is done.
        mine.send(None)
        assert mine.poll(PATIENCE_S), "the attacker does not end"
        counts = mine.recv()
        attacker.join(PATIENCE_S)
    return served, counts, (most - before) / 1e6


@contextmanager
def _good_clients(broker: Broker, context: ssl.SSLContext, served: Served) -> Iterator[None]:
    is_over, failures = threading.Event(), list[Exception]()
    records = _batch(100)

    def write() -> None:
        with _logged_in(broker, context) as client:
            while not is_over.wait(0.01):
                begun_s = time.perf_counter()
                assert produce(client, TOPIC, records).error_code == 0
                served.requests_ms.append((time.perf_counter() - begun_s) * 1000)

    def log_in() -> None:
        while not is_over.wait(0.1):
            begun_s = time.perf_counter()
            with _logged_in(broker, context):
                served.logins_ms.append((time.perf_counter() - begun_s) * 1000)

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in (write, log_in)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


@contextmanager
def _logged_in(broker: Broker, context: ssl.SSLContext) -> Iterator[WireClient]:
    host, _, port = broker.bootstrap.rpartition(":")
    with WireClient(f"{host}:{int(port) + SASL_PORT}", timeout_s=PATIENCE_S) as client:
        client.socket = context.wrap_socket(client.socket, server_hostname=host)
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        token = next(plain_exchange(USER, PASSWORD))
        assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
        yield client


# The attacker's side. It need not check who the broker is.

Address = tuple[str, int]
Attack = Callable[[Address, Counter[str]], Coroutine[None, None, None]]


def _attack(name: str, address: Address, pipe: multiprocessing.connection.Connection) -> None:
    """Attack until the other end of the pipe says that it is enough."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.nice(19)
    counts = Counter[str]()
    # Sockets that the broker closes are no news.
    logging.disable()

    async def go_on() -> None:
        attacking = asyncio.create_task(ATTACKS[name](address, counts))
        await asyncio.sleep(0.5)
        pipe.send(None)
        await asyncio.to_thread(pipe.recv)
        if attacking.done():
            attacking.result()
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)

    asyncio.run(go_on())
    pipe.send(counts)


def _over_and_over(once: Attack) -> Attack:
    """Return an attack that does the same again and again, on some connections at a time."""

    async def attack(address: Address, counts: Counter[str]) -> None:
        async def go_on() -> None:
            while True:
                with suppress(OSError, EOFError, AssertionError):
                    await once(address, counts)
                counts["tries"] += 1

        await asyncio.gather(*(go_on() for _ in range(AT_ONCE)))

    return attack


def _at(address: Address, offset: int) -> Address:
    return address[0], address[1] + offset


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


_CONTEXT = _unchecked()


class _Peer:
    """One connection over TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @staticmethod
    async def open(address: Address) -> _Peer:
        return _Peer(*await asyncio.open_connection(*address, ssl=_CONTEXT))

    async def ask(self, request: Request, version: int) -> object:
        self.writer.write(encode_request(request, version, 1, "attacker"))
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return decode_response(await self.reader.readexactly(size), request.api_key, version)[1]

    async def log_in(self, mechanism: str, exchange: Exchange) -> int:
        """Return the error code."""
        await self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        token = next(exchange)
        while True:
            answer = await self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            if answer.error_code:  # type: ignore[attr-defined]
                return int(answer.error_code)  # type: ignore[attr-defined]
            try:
                token = exchange.send(bytes(answer.auth_bytes))  # type: ignore[attr-defined]
            except StopIteration:
                return 0

    def close(self) -> None:
        self.writer.transport.abort()


async def _half_open(address: Address, counts: Counter[str]) -> None:
    """Hold connections whose first message the broker has answered, and say no more."""
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _CONTEXT.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    hello = outgoing.read()
    writers = []
    for _ in range(HELD):
        reader, writer = await asyncio.open_connection(*_at(address, SSL_PORT))
        writer.write(hello)
        counts["tries"] += bool(await reader.read(1))
        writers.append(writer)
    await asyncio.Event().wait()


async def _slow(address: Address, counts: Counter[str]) -> None:
    """Send each handshake byte by byte."""
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _CONTEXT.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    hello = outgoing.read()
    writers = [(await asyncio.open_connection(*_at(address, SSL_PORT)))[1] for _ in range(HELD)]
    for number in range(len(hello)):
        for writer in writers:
            writer.write(hello[number : number + 1])
            counts["tries"] += 1
        await asyncio.sleep(0.1)


async def _plaintext(address: Address, counts: Counter[str]) -> None:
    reader, writer = await asyncio.open_connection(*_at(address, SSL_PORT))
    try:
        writer.write(encode_request(MetadataRequest(topics=[]), 4, 1, "attacker"))
        # An alert of TLS has seven bytes.
        counts["let in"] += len(await reader.read(100)) > 7
    finally:
        writer.transport.abort()


async def _handshakes(address: Address, counts: Counter[str]) -> None:
    (await _Peer.open(_at(address, SSL_PORT))).close()


async def _renegotiation(address: Address, counts: Counter[str]) -> None:
    async with openssl_peer(*_at(address, SSL_PORT), ssl.TLSVersion.TLSv1_2) as peer:
        assert peer.lib.SSL_renegotiate(peer.tls) == 1
        counts["let in"] += await peer.until_done(lambda: peer.lib.SSL_do_handshake(peer.tls)) == 1


async def _new_keys(address: Address, counts: Counter[str]) -> None:
    """Renew the keys of TLS 1.3 without end."""
    async with openssl_peer(*_at(address, SSL_PORT), ssl.TLSVersion.TLSv1_3) as peer:
        while True:
            for _ in range(100):
                peer.update_keys(peers_too=False)
            counts["tries"] += 100
            peer.send_records()
            await peer.drain()
            # Draining waits only if much is left.
            await asyncio.sleep(0)


async def _huge_frames(address: Address, counts: Counter[str]) -> None:
    """Announce 100 MB before the login, and send them until the connection ends."""
    peer = await _Peer.open(_at(address, SASL_PORT))
    try:
        peer.writer.write(struct.pack(">i", HUGE_BYTES))
        sent = 0
        while sent < HUGE_BYTES and not (peer.writer.is_closing() or peer.reader.at_eof()):
            peer.writer.write(bytes(65_536))
            await peer.writer.drain()
            await asyncio.sleep(0)
            sent += 65_536
        counts["let in"] += sent >= HUGE_BYTES
    finally:
        peer.close()


async def _long_logins(address: Address, counts: Counter[str]) -> None:
    """Hold connections that have sent the longest frame allowed before a login, but for its last byte."""
    peers = []
    for _ in range(HELD // 5):
        with suppress(OSError):
            peer = await _Peer.open(_at(address, SASL_PORT))
            peers.append(peer)
            peer.writer.write(struct.pack(">i", LOGIN_BYTES_MAX) + bytes(LOGIN_BYTES_MAX - 1))
            with suppress(TimeoutError):
                await asyncio.wait_for(peer.writer.drain(), 1)
            counts["tries"] += 1
    await asyncio.Event().wait()


async def _wrong_passwords(address: Address, counts: Counter[str]) -> None:
    peer = await _Peer.open(_at(address, SASL_PORT))
    try:
        guess = f"guess-{random.random()}"
        if random.randrange(2):
            code = await peer.log_in("PLAIN", plain_exchange(USER, guess))
        else:
            code = await peer.log_in("SCRAM-SHA-512", scram_exchange("SCRAM-SHA-512", USER, guess, is_token=False))
        counts["let in"] += code == 0
    finally:
        peer.close()


async def _before_login(address: Address, counts: Counter[str]) -> None:
    peer = await _Peer.open(_at(address, SASL_PORT))
    try:
        await peer.ask(MetadataRequest(topics=[]), 4)
        counts["let in"] += 1
    finally:
        peer.close()


async def _never_reads(address: Address, counts: Counter[str]) -> None:
    """Log in, ask for megabytes again and again, and read none of them."""
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**31 - 1)]
    request = FetchRequest(max_wait_ms=0, max_bytes=2**31 - 1, topics=[FetchTopic(topic=FULL, partitions=wanted)])
    frame = encode_request(request, 11, 1, "attacker")
    peers = []
    for _ in range(AT_ONCE):
        peer = await _Peer.open(_at(address, SASL_PORT))
        assert await peer.log_in("PLAIN", plain_exchange(USER, PASSWORD)) == 0
        sock: socket.socket = peer.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(128):
            peer.writer.write(frame)
            counts["tries"] += 1
        peers.append(peer)
    await asyncio.Event().wait()


ATTACKS: dict[str, Attack] = {
    "half-open handshakes": _half_open,
    "slow handshakes": _slow,
    "plaintext at a TLS port": _over_and_over(_plaintext),
    "full handshakes": _over_and_over(_handshakes),
    "renegotiation": _over_and_over(_renegotiation),
    "new keys": _over_and_over(_new_keys),
    "100 MB before a login": _over_and_over(_huge_frames),
    "500 kB before a login": _long_logins,
    "wrong passwords": _over_and_over(_wrong_passwords),
    "requests before a login": _over_and_over(_before_login),
    "answers never read": _never_reads,
}

if __name__ == "__main__":
    main()
