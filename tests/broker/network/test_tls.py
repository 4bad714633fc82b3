"""TLS on a listener: who is let in, what is sent, and what peers that break it cost."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from certificates import Authority, Signed
from event_loop import staged
from network_serving import answer_with_name, correlation_ids, metadata_request, read_frame, run, serving, session
from openssl_peer import openssl_peer
from virtual_time import ManualClock

from engine.broker.log.file_range import FileRange, OpenFile
from engine.broker.network import connection, tls
from engine.broker.network import server as server_module
from engine.broker.network.connection import ADMIT_WITHIN_MS
from engine.broker.network.request import RequestHead
from engine.broker.network.server import ServerLimits, SocketServer
from engine.broker.network.tls import TlsConnection
from engine.broker.security.listener_security import TlsListener
from engine.common.model import SecurityProtocol, address_in_java
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.metadata import MetadataResponse
from engine.kafka.protocol.codec import Outgoing
from engine.kafka.protocol.frames import encode_request
from engine.kafka.protocol.large_arrays import EncodedPiece

PATIENCE_S = 30.0
REFUSED = (asyncio.IncompleteReadError, ssl.SSLError, ConnectionError)
CA = Authority()
CLIENT = CA.sign("Anna Example")


def listener(folder: Path, client_auth: str = "none", **settings: str) -> TlsListener:
    return TlsListener(config(folder, client_auth, **settings), "SSL", SecurityProtocol.SSL)


def config(folder: Path, client_auth: str = "none", own: Signed | None = None, **settings: str) -> BrokerConfig:
    """Return a broker's settings, with stores in the folder."""
    (folder / "ca.pem").write_text(CA.pem)
    store = (own or CA.sign("broker", ["broker.example"])).write_pem(folder / "broker.pem")
    return BrokerConfig(
        {
            "broker.id": "0",
            "zookeeper.connect": "z:1",
            "listeners": "SSL://localhost:9093,PLAINTEXT://localhost:9092",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "ssl.client.auth": client_auth,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def client_context(folder: Path, own: Signed | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=CA.pem)
    if own is not None:
        context.load_cert_chain(own.write_pem(folder / "client.pem"))
    return context


async def connected(host: str, port: int, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(host, port, ssl=context, server_hostname="broker.example")


def tell_principal(request: RequestHead, body: Any) -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[], cluster_id=request.session.principal)


@asynccontextmanager
async def telling_principals(policy: TlsListener) -> AsyncIterator[tuple[SocketServer, str, int]]:
    async with serving({ApiKey.METADATA: tell_principal}, tls=policy) as server:
        yield server


async def principal_at(host: str, port: int, context: ssl.SSLContext) -> str:
    """Return as whom the server knows a client; it may be refused when it first reads (TLS 1.3)."""
    reader, writer = await connected(host, port, context)
    try:
        writer.write(metadata_request("t", 1))
        frame = await read_frame(reader)
    finally:
        writer.close()
    start = frame.index(b"User:")
    return frame[start : start + struct.unpack_from(">h", frame, start - 2)[0]].decode()


def test_answers_come_in_order_whatever_their_size_and_wherever_they_are(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(3_000_000)
    (tmp_path / "f").write_bytes(content)
    file = OpenFile(os.open(tmp_path / "f", os.O_RDONLY))
    sizes = [0, 1, 20_000, 16_384, 2_999_999, 500, 700_000]

    def from_file(request: RequestHead, body: Any) -> Outgoing:
        size = sizes[request.correlation_id]
        out = Outgoing(struct.pack(">ii", 4 + 2 * size + 3, request.correlation_id))
        out.splice(FileRange(file, 0, size))
        out.splice(EncodedPiece(content, 1, 1 + size))
        out += b"end"
        return out

    async def check() -> None:
        async with serving({ApiKey.METADATA: from_file}, tls=listener(tmp_path)) as (_, host, port):
            reader, writer = await connected(host, port, client_context(tmp_path))
            writer.write(b"".join(metadata_request(f"t{i}", i) for i in range(len(sizes))))
            for number, size in enumerate(sizes):
                frame = await read_frame(reader)
                assert struct.unpack_from(">i", frame)[0] == number
                assert frame[4:] == content[:size] + content[1 : 1 + size] + b"end"
            writer.close()

    run(check)


@staged(run)
async def test_many_small_requests_in_few_records_and_one_request_in_many(tmp_path: Path) -> None:
    async with serving({ApiKey.METADATA: answer_with_name}, tls=listener(tmp_path)) as (_, host, port):
        reader, writer = await connected(host, port, client_context(tmp_path))
        writer.write(b"".join(metadata_request("x" * (i % 100), i) for i in range(5000)))
        assert correlation_ids([await read_frame(reader) for _ in range(5000)]) == list(range(5000))
        for byte in metadata_request("slow", 7):
            writer.write(bytes([byte]))
            await writer.drain()
        assert correlation_ids([await read_frame(reader)]) == [7]
        writer.close()


@pytest.mark.parametrize("turn_ms", [0, 2])
def test_requests_in_records_and_packets_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn_ms: int
) -> None:
    monkeypatch.setattr(connection, "TURN_MS_MAX", turn_ms)
    context = client_context(tmp_path)

    async def check() -> None:
        async with serving({ApiKey.METADATA: answer_with_name}, tls=listener(tmp_path)) as (_, host, port):
            await asyncio.gather(*(ask_oddly(host, port, context, random.Random(seed)) for seed in range(4)))

    run(check)


async def tried_as_bytes_come(
    call: Callable[[], Any],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
) -> Any:
    """Return what a step of TLS returns once enough bytes have come for it."""
    while True:
        try:
            return call()
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            async with asyncio.timeout(PATIENCE_S):
                came = await reader.read(65_536)
            assert came, "the connection is over"
            incoming.write(came)


async def ask_oddly(host: str, port: int, context: ssl.SSLContext, numbers: random.Random) -> None:
    """Send requests in TLS records and packets of random sizes, then say the end; read all answers."""
    count, incoming, outgoing = 150, ssl.MemoryBIO(), ssl.MemoryBIO()
    names = [numbers.choice((0, 1, 100, 8_000, 20_000)) * "x" + str(i) for i in range(count)]
    tls = context.wrap_bio(incoming, outgoing, server_hostname="broker.example")
    reader, writer = await asyncio.open_connection(host, port)

    async def once_enough_came(call: Callable[[], Any]) -> Any:
        return await tried_as_bytes_come(call, reader, writer, incoming, outgoing)

    async def send() -> None:
        left = b"".join(metadata_request(name, i) for i, name in enumerate(names))
        while left:
            left = left[tls.write(left[: numbers.choice((1, 9, 100, 1_000, 16_384))]) :]
        with suppress(ssl.SSLWantReadError):
            tls.unwrap()
        records = outgoing.read()
        while records:
            size = numbers.choice((7, 1_500, 16_384, 200_000))
            writer.write(records[:size])
            records = records[size:]
            await writer.drain()

    await once_enough_came(tls.do_handshake)
    writer.write(outgoing.read())
    sending = asyncio.create_task(send())
    answers = b""
    for number, name in enumerate(names):
        while len(answers) < 4 or len(answers) < 4 + int.from_bytes(answers[:4], "big"):
            answers += await once_enough_came(lambda: tls.read(65_536))
        end = 4 + int.from_bytes(answers[:4], "big")
        assert int.from_bytes(answers[4:8], "big") == number
        assert name.encode() in answers[:end]
        answers = answers[end:]
    await sending
    async with asyncio.timeout(PATIENCE_S):
        while await reader.read():
            pass
    writer.close()


@staged(run)
async def test_small_records_that_come_with_the_end_are_all_answered(tmp_path: Path) -> None:
    """They are decrypted together, and the record that ends the connection is one of them."""
    async with serving({ApiKey.METADATA: answer_with_name}, tls=listener(tmp_path)) as (_, host, port):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context(tmp_path).wrap_bio(incoming, outgoing, server_hostname="broker.example")
        reader, writer = await asyncio.open_connection(host, port)

        async def once_enough_came(call: Callable[[], Any]) -> Any:
            return await tried_as_bytes_come(call, reader, writer, incoming, outgoing)

        await once_enough_came(tls.do_handshake)
        # What comes with the handshake's end TLS gets with it: the others wait for an answer.
        tls.write(metadata_request("t", 0))
        answers, numbers = await once_enough_came(lambda: tls.read(65_536)), []
        for number in range(1, 20):
            tls.write(metadata_request("t", number))
        with suppress(ssl.SSLWantReadError):
            tls.unwrap()
        writer.write(outgoing.read())
        while len(numbers) < 20:
            while len(answers) >= 4 and len(answers) >= (end := 4 + int.from_bytes(answers[:4], "big")):
                numbers.append(int.from_bytes(answers[4:8], "big"))
                answers = answers[end:]
            if len(numbers) < 20:
                answers += await once_enough_came(lambda: tls.read(65_536))
        assert numbers == list(range(20))
        async with asyncio.timeout(PATIENCE_S):
            while await reader.read():
                pass
        writer.close()


def test_what_is_decrypted_when_a_turn_ends_is_handled_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inbox has little room behind a half frame, so TLS keeps the rest of a record, and no more bytes come."""
    monkeypatch.setattr(connection, "TURN_MS_MAX", 0)
    requests = b"".join(metadata_request("x" * 100, number) for number in range(100))

    async def check() -> None:
        async with serving({ApiKey.METADATA: answer_with_name}, tls=listener(tmp_path)) as (server, host, port):
            reader, writer = await connected(host, port, client_context(tmp_path))
            writer.write(requests[:10])
            (connection,) = server.connections
            async with asyncio.timeout(PATIENCE_S):
                while connection._inbox.is_empty:
                    await asyncio.sleep(0)
            writer.write(requests[10:])
            assert correlation_ids([await read_frame(reader) for _ in range(100)]) == list(range(100))
            writer.close()

    run(check)


def test_a_peer_that_does_not_read_costs_little_and_is_served_once_it_reads(tmp_path: Path) -> None:
    content = random.Random(2).randbytes(1_000_000)
    (tmp_path / "f").write_bytes(content)
    file = OpenFile(os.open(tmp_path / "f", os.O_RDONLY))

    def from_file(request: RequestHead, body: Any) -> Outgoing:
        out = Outgoing(struct.pack(">ii", 4 + len(content), request.correlation_id))
        out.splice(FileRange(file, 0, len(content)))
        return out

    async def check() -> None:
        async with serving({ApiKey.METADATA: from_file}, tls=listener(tmp_path)) as (server, host, port):
            reader, writer = await connected(host, port, client_context(tmp_path))
            writer.write(b"".join(metadata_request("t", i) for i in range(50)))
            (connection,) = server.connections
            async with asyncio.timeout(PATIENCE_S):
                while connection._sender is None or connection._sender.queued_bytes < len(content):
                    await asyncio.sleep(0)
            for number in range(50):
                frame = await read_frame(reader)
                assert struct.unpack_from(">i", frame)[0] == number
                assert frame[4:] == content
            writer.close()

    run(check)


@pytest.mark.parametrize(("asked", "answered"), [(10, 1_000_000), (20_000, 10)], ids=["answers", "requests"])
def test_a_connection_that_was_busy_keeps_little_memory(tmp_path: Path, asked: int, answered: int) -> None:
    """OpenSSL's buffers never shrink: one large answer, or one large read, was 150 to 200 kB for good."""
    connections, requests = 80, 30

    def handle(request: RequestHead, body: Any) -> Outgoing:
        return Outgoing(struct.pack(">ii", 4 + answered, request.correlation_id) + bytes(answered))

    def talk(host: str, port: int) -> list[ssl.SSLSocket]:
        context, peers = client_context(tmp_path), []
        for _ in range(connections):
            peer = context.wrap_socket(socket.create_connection((host, port)), server_hostname="broker.example")
            peer.sendall(metadata_request("x" * asked, 1) * (requests if asked > answered else 1))
            left = (8 + answered) * (requests if asked > answered else 1)
            while left:
                left -= len(peer.recv(min(left, 16_384)))
            peers.append(peer)
        return peers

    async def check() -> None:
        async with serving({ApiKey.METADATA: handle}, tls=listener(tmp_path)) as (server, host, port):
            begin_kb = anonymous_kb()
            peers = await asyncio.get_running_loop().run_in_executor(None, talk, host, port)
            assert len(server.connections) == connections
            assert (anonymous_kb() - begin_kb) / connections < 100, "both ends of a new connection take 43 kB"
            for peer in peers:
                peer.close()

    run(check)


def anonymous_kb() -> int:
    (line,) = (text for text in Path("/proc/self/status").read_text().splitlines() if text.startswith("RssAnon"))
    return int(line.split()[1])


@staged(run)
async def test_the_certificate_says_who_a_client_is(tmp_path: Path) -> None:
    rules = "RULE:^CN=(.*?) .*$/$1/L,DEFAULT"
    policy = listener(tmp_path, "required", ssl_principal_mapping_rules=rules)
    async with telling_principals(policy) as (server, host, port):
        assert await principal_at(host, port, client_context(tmp_path, CLIENT)) == "User:anna"
        assert await principal_at(host, port, client_context(tmp_path, CA.sign("bob"))) == "User:CN=bob"
        (totals,) = server.totals.values()
        assert (totals.logins, totals.failed_logins) == (2, 0)
        assert totals.received() == (2, 2 * len(metadata_request("t", 1)))
    async with telling_principals(listener(tmp_path, "none")) as (_, host, port):
        assert await principal_at(host, port, client_context(tmp_path, CLIENT)) == "User:ANONYMOUS"


def test_a_very_long_subject_is_the_name_of_a_client(tmp_path: Path) -> None:
    units = [f"{number:064}" for number in range(160)]
    long = CA.sign("Anna Example", units=units)

    async def check() -> None:
        async with telling_principals(listener(tmp_path, "required")) as (_, host, port):
            name = await principal_at(host, port, client_context(tmp_path, long))
            assert name == f"User:{','.join(f'OU={unit}' for unit in reversed(units))},CN=Anna Example"

    run(check)


def test_a_client_may_show_a_long_chain_and_must_show_all_of_it(tmp_path: Path) -> None:
    chain = [CA]
    for number in range(9):
        chain.append(Authority(f"authority {number}", chain[-1]))
    client = chain[-1].sign("Anna Example")
    between = [authority.pem for authority in reversed(chain[1:])]
    context = client_context(tmp_path)

    def present(shown: list[str]) -> None:
        (tmp_path / "client.pem").write_text(client.key_pem() + client.certificate_pem + "".join(shown))
        context.load_cert_chain(tmp_path / "client.pem")

    async def check() -> None:
        async with telling_principals(listener(tmp_path, "required")) as (_, host, port):
            present(between)
            assert await principal_at(host, port, context) == "User:CN=Anna Example"
            present(between[:4] + between[5:])
            with pytest.raises(REFUSED):
                await principal_at(host, port, context)

    run(check)


def test_other_names_and_protocols_than_its_own_do_not_matter(tmp_path: Path) -> None:
    """As in Kafka, which looks at neither SNI nor ALPN."""
    context = client_context(tmp_path)
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "x" * 255])

    async def check() -> None:
        async with serving({ApiKey.METADATA: answer_with_name}, tls=listener(tmp_path)) as (_, host, port):
            for name in ("nobody.example", ".".join(["x" * 63] * 3), "broker.example"):
                reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
                assert writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
                writer.write(metadata_request("t", 7))
                assert correlation_ids([await read_frame(reader)]) == [7]
                writer.close()

    run(check)


@staged(run)
async def test_nothing_is_taken_before_a_handshake_is_over(tmp_path: Path) -> None:
    """Early data of TLS 1.3 could be sent again by anybody who has seen it. The tickets allow none."""
    async with (
        serving({ApiKey.METADATA: answer_with_name}, tls=listener(tmp_path)) as (_, host, port),
        openssl_peer(host, port, ssl.TLSVersion.TLSv1_3) as peer,
    ):
        peer.write(metadata_request("t", 0))
        await peer.read()
        session = peer.lib.SSL_get_session(peer.tls)
        assert peer.lib.SSL_SESSION_has_ticket(session) == 1
        assert peer.lib.SSL_SESSION_get_max_early_data(session) == 0


@staged(run)
async def test_a_certificate_that_no_rule_fits_is_not_let_in(tmp_path: Path) -> None:
    policy = listener(tmp_path, "required", ssl_principal_mapping_rules="RULE:^OU=(.*)$/$1/")
    async with telling_principals(policy) as (_, host, port):
        with pytest.raises(REFUSED):
            await principal_at(host, port, client_context(tmp_path, CLIENT))


@pytest.mark.parametrize("client_auth", ["required", "requested"])
@pytest.mark.parametrize(
    "own",
    [None, Authority("another CA").sign("mallory"), CA.sign("late", days=(-9, -2)), CA.sign("early", days=(2, 9))],
    ids=["none", "of another CA", "expired", "not valid yet"],
)
@staged(run)
async def test_bad_certificates_are_refused_and_none_is_where_one_is_required(
    tmp_path: Path, client_auth: str, own: Signed | None
) -> None:
    async with telling_principals(listener(tmp_path, client_auth)) as (server, host, port):
        context = client_context(tmp_path, own)
        if own is None and client_auth == "requested":
            assert await principal_at(host, port, context) == "User:ANONYMOUS"
            return
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context.maximum_version = version
            with pytest.raises(REFUSED):
                await principal_at(host, port, context)
        assert [totals.failed_logins for totals in server.totals.values()] == [2]


@pytest.mark.parametrize(
    ("protocol", "key", "asks"),
    [
        (SecurityProtocol.SSL, "ssl_client_auth", True),
        (SecurityProtocol.SASL_SSL, "ssl_client_auth", False),
        (SecurityProtocol.SASL_SSL, "listener_name_safe_ssl_client_auth", True),
    ],
)
def test_where_peers_log_in_only_the_listeners_own_setting_asks_for_certificates(
    tmp_path: Path, protocol: SecurityProtocol, key: str, asks: bool
) -> None:
    """KIP-684."""
    settings = config(tmp_path, **{key: "required"})
    assert (TlsListener(settings, "SAFE", protocol).tls.verify_mode is ssl.CERT_REQUIRED) is asks


def test_only_enabled_versions_and_suites_are_spoken(tmp_path: Path) -> None:
    async def version(policy: TlsListener, maximum: ssl.TLSVersion) -> tuple[str, str]:
        async with telling_principals(policy) as (_, host, port):
            context = client_context(tmp_path)
            context.maximum_version = maximum
            _, writer = await connected(host, port, context)
            writer.close()
            cipher = writer.get_extra_info("cipher")
            return cipher[1], cipher[0]

    async def check() -> None:
        newest, older = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2
        assert (await version(listener(tmp_path), newest))[0] == "TLSv1.3"
        assert (await version(listener(tmp_path), older))[0] == "TLSv1.2"
        suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        chosen = await version(listener(tmp_path, ssl_cipher_suites=suite), newest)
        assert chosen == ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")
        with pytest.raises(ssl.SSLError):
            await version(listener(tmp_path, ssl_enabled_protocols="TLSv1.3"), older)

    run(check)


@staged(run)
async def test_what_is_not_tls_ends_its_connection_only(tmp_path: Path) -> None:
    async with serving({ApiKey.METADATA: answer_with_name}, tls=listener(tmp_path)) as (server, host, port):
        good_reader, good_writer = await connected(host, port, client_context(tmp_path))
        for garbage in (metadata_request("t", 1), b"GET / HTTP/1.1\r\n\r\n", bytes(300), b"\x16\x03\x01\xff\xff"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(garbage)
            writer.write_eof()
            async with asyncio.timeout(PATIENCE_S):
                # At most an alert, which is seven bytes.
                assert len(await reader.read()) <= 7
            writer.close()
        good_writer.write(metadata_request("t", 3))
        assert correlation_ids([await read_frame(good_reader)]) == [3]
        good_writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while server.connections:
                await asyncio.sleep(0)


def flipped(record: bytes) -> bytes:
    return record[:-1] + bytes((record[-1] ^ 1,))


@pytest.mark.parametrize(
    "damage",
    [
        flipped,
        lambda record: metadata_request("t", 1),
        lambda record: record[:3] + (16 * 1024 + 257).to_bytes(2) + bytes(16 * 1024 + 257),
        lambda record: record[:3] + b"\0\0",
        lambda record: b"\x16" + record[1:],
        lambda record: record[:1] + b"\x02\x00" + record[3:],
        lambda record: record[5:] + record,
        lambda record: record[:-1] + record,
    ],
    ids=["a bit", "plaintext", "too large", "empty", "a handshake", "version 2", "its middle first", "cut short"],
)
@staged(run)
async def test_damaged_records_end_the_connection(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    handled: list[int] = []

    def note(request: RequestHead, body: Any) -> MetadataResponse:
        handled.append(request.correlation_id)
        return answer_with_name(request, body)

    async with serving({ApiKey.METADATA: note}, tls=listener(tmp_path)) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context(tmp_path).wrap_bio(incoming, outgoing, server_hostname="broker.example")
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(65536))
            writer.write(outgoing.read())
            tls.write(metadata_request("t", 1))
            writer.write(damage(outgoing.read()))
            with suppress(ConnectionError):
                await reader.read()
        writer.close()
        assert handled == []


KEY_UPDATE_BYTES = 27


@staged(run)
async def test_nobody_renegotiates(tmp_path: Path) -> None:
    """Of TLS 1.2: a client could make the broker compute signatures forever, and change who it is."""
    async with (
        serving({ApiKey.METADATA: answer_with_name}, tls=listener(tmp_path)) as (_, host, port),
        openssl_peer(host, port, ssl.TLSVersion.TLSv1_2) as peer,
    ):
        assert peer.lib.SSL_renegotiate(peer.tls) == 1
        assert await peer.until_done(lambda: peer.lib.SSL_do_handshake(peer.tls)) < 0


@pytest.mark.parametrize("peers_too", [False, True], ids=["own", "both"])
@pytest.mark.parametrize("every", [1, 3, 7])
def test_small_records_with_new_keys_among_them_are_all_answered(tmp_path: Path, every: int, peers_too: bool) -> None:
    """A KeyUpdate of TLS 1.3 has no content: who reads as many times as there are records reads less than came."""
    count = 60
    names = ["x" * (7 * number % 300) for number in range(count)]

    async def check() -> None:
        async with (
            serving({ApiKey.METADATA: answer_with_name}, tls=listener(tmp_path)) as (_, host, port),
            openssl_peer(host, port, ssl.TLSVersion.TLSv1_3) as peer,
        ):
            # What comes with the handshake's end TLS gets with it: the others wait for an answer.
            peer.write(metadata_request("t", 0))
            answers, numbers = await peer.read(), []
            for number in range(1, count):
                if number % every == 0:
                    peer.update_keys(peers_too=peers_too)
                peer.write(metadata_request(names[number], number))
            peer.update_keys(peers_too=peers_too)
            peer.send_records()
            while len(numbers) < count:
                while len(answers) >= 4 and len(answers) >= (end := 4 + int.from_bytes(answers[:4], "big")):
                    numbers.append(int.from_bytes(answers[4:8], "big"))
                    answers = answers[end:]
                if len(numbers) < count:
                    answers += await peer.read()
            assert numbers == list(range(count))

    run(check)


def test_a_flood_of_new_keys_takes_turns_with_others(tmp_path: Path) -> None:
    """Each costs as much as ten small requests."""
    flood = 3_000

    async def check() -> None:
        async with (
            serving({ApiKey.METADATA: answer_with_name}, tls=listener(tmp_path)) as (server, host, port),
            openssl_peer(host, port, ssl.TLSVersion.TLSv1_3) as peer,
        ):
            peer.write(metadata_request("t", 0))
            await peer.read()
            (connection,) = server.connections
            assert isinstance(connection, TlsConnection)
            for _ in range(flood):
                peer.update_keys(peers_too=True)
            peer.write(metadata_request("t", 1))
            peer.send_records()
            answer = asyncio.create_task(peer.read())
            turns, before = 0, 0
            while not answer.done():
                left = len(connection._encrypted)
                assert before - left < 200 * KEY_UPDATE_BYTES
                turns += left > 0
                before = left
                await asyncio.sleep(0)
            assert correlation_ids([(await answer)[4:]]) == [1]
            # The last of each read leaves nothing behind.
            assert turns > flood / 200 / 2

    run(check)


def test_new_keys_that_a_peer_asks_for_and_does_not_read_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in their place among the answers, and nothing is read from the peer while much waits."""
    monkeypatch.setattr(connection, "QUEUED_BYTES_MAX", 400_000)
    answered, flood = 300_000, 8_000

    def handle(request: RequestHead, body: Any) -> Outgoing:
        return Outgoing(struct.pack(">ii", 4 + answered, request.correlation_id) + bytes(answered))

    async def check() -> None:
        limits = ServerLimits(socket_send_buffer_bytes=16_384)
        async with (
            serving({ApiKey.METADATA: handle}, limits, tls=listener(tmp_path)) as (server, host, port),
            openssl_peer(host, port, ssl.TLSVersion.TLSv1_3) as peer,
        ):
            (served,) = server.connections
            assert isinstance(served, TlsConnection)
            peer.transport.pause_reading()
            peer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            peer.write(metadata_request("t", 0))
            for _ in range(flood):
                peer.update_keys(peers_too=True)
            peer.write(metadata_request("t", 1))
            peer.send_records()
            async with asyncio.timeout(PATIENCE_S):
                while served._can_handle() or served._waits_for_turn:
                    await asyncio.sleep(0)
            assert served._outgoing.pending == 0
            assert served._sender is not None
            assert 400_000 <= served._sender.queued_bytes < 400_000 + 200 * KEY_UPDATE_BYTES
            peer.transport.resume_reading()
            answers = b""
            while len(answers) < 2 * (8 + answered):
                answers += await peer.read()
            assert correlation_ids([answers[4:], answers[8 + answered + 4 :]]) == [0, 1]

    run(check)


def test_new_keys_come_before_an_answer_that_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not encrypted yet will be, with the new ones."""
    size = 100_000
    (tmp_path / "f").write_bytes(bytes(size))
    file = OpenFile(os.open(tmp_path / "f", os.O_RDONLY))
    read, is_in_memory = tls._read, False

    def from_file(request: RequestHead, body: Any) -> Outgoing:
        out = Outgoing(struct.pack(">ii", 4 + size, request.correlation_id))
        out.splice(FileRange(file, 0, size))
        return out

    async def check() -> None:
        nonlocal is_in_memory
        monkeypatch.setattr(tls, "_read", lambda head, room: is_in_memory and read(head, room))
        async with (
            serving({ApiKey.METADATA: from_file}, tls=listener(tmp_path)) as (server, host, port),
            openssl_peer(host, port, ssl.TLSVersion.TLSv1_3) as peer,
        ):
            (served,) = server.connections
            peer.write(metadata_request("t", 0))
            peer.send_records()
            async with asyncio.timeout(PATIENCE_S):
                while not served.is_unread:
                    await asyncio.sleep(0)
                # OpenSSL answers to the last one once it encrypts.
                for _ in range(3):
                    peer.update_keys(peers_too=True)
                peer.write(metadata_request("t", 1))
                peer.send_records()
                while served._sender.queued_bytes < 2 * size:
                    await asyncio.sleep(0)
            is_in_memory = True
            answers = b""
            while len(answers) < 2 * (8 + size):
                answers += await peer.read()
            assert correlation_ids([answers[4:], answers[8 + size + 4 :]]) == [0, 1]

    run(check)


def test_a_client_whose_ca_is_revoked_gets_in_no_more(tmp_path: Path) -> None:
    """Neither by a new handshake nor by going on with the session of an earlier one; who is in stays, as in Kafka."""

    def handshake(host: str, port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSession:
        with (
            socket.create_connection((host, port), timeout=PATIENCE_S) as raw,
            context.wrap_socket(raw, server_hostname="broker.example", session=session) as tls,
        ):
            tls.sendall(metadata_request("t", 1))
            if not tls.recv(4):
                raise ConnectionResetError
            assert tls.session is not None
            return tls.session

    other = Authority("the CA of others")

    async def check() -> None:
        trusting = config(tmp_path, "required")
        (tmp_path / "ca.pem").write_text(CA.pem + other.pem)
        policy = TlsListener(trusting, "SSL", SecurityProtocol.SSL)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            policy.reload(trusting)
            context = client_context(tmp_path, other.sign("mallory"))
            context.maximum_version = version
            async with telling_principals(policy) as (_, host, port):
                inside = await connected(host, port, context)
                session = await asyncio.to_thread(handshake, host, port, context, None)
                session = await asyncio.to_thread(handshake, host, port, context, session)
                (tmp_path / "ca.pem").write_text(CA.pem)
                policy.reload(trusting)
                for resumed in (session, None):
                    with pytest.raises(REFUSED):
                        await asyncio.to_thread(handshake, host, port, context, resumed)
                inside[1].write(metadata_request("t", 7))
                assert correlation_ids([await read_frame(inside[0])]) == [7]
                inside[1].close()
            (tmp_path / "ca.pem").write_text(CA.pem + other.pem)

    run(check)


@staged(run)
async def test_connections_count_before_they_shake_hands(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = ServerLimits(max_connections_per_ip=3)
    async with serving({ApiKey.METADATA: answer_with_name}, limits, tls=listener(tmp_path)) as (server, host, port):
        silent = [await asyncio.open_connection(host, port) for _ in range(3)]
        async with asyncio.timeout(PATIENCE_S):
            while len(server.connections) < 3:
                await asyncio.sleep(0)
            reader, writer = await asyncio.open_connection(host, port)
            assert await reader.read() == b""
        assert "already has the 3 that max.connections.per.ip or " in caplog.text
        for _, each in [*silent, (reader, writer)]:
            each.close()


@staged(run)
async def test_a_peer_that_drips_its_handshake_does_not_stay(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving({}, clock=clock, tls=listener(tmp_path)) as (server, host, port):
        good_reader, good_writer = await connected(host, port, client_context(tmp_path))
        good_writer.write(bytes(encode_request(ApiVersionsRequest(), 0, 3, "test")))
        assert correlation_ids([await read_frame(good_reader)]) == [3]
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"\x16\x03")
        async with asyncio.timeout(PATIENCE_S):
            while len(server.connections) < 2:
                await asyncio.sleep(0)
            clock.advance(ADMIT_WITHIN_MS)
            server._close_unknown()
            assert len(server.connections) == 2
            writer.write(b"\x01")
            await asyncio.sleep(0)
            clock.advance(1)
            server._close_unknown()
            with suppress(ConnectionError):
                assert await reader.read() == b""
        good_writer.write(bytes(encode_request(ApiVersionsRequest(), 0, 4, "test")))
        assert correlation_ids([await read_frame(good_reader)]) == [4]
        for each in (writer, good_writer):
            each.close()


def test_a_handshake_byte_by_byte_wakes_the_broker_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them would keep it busy otherwise."""
    wakes = []
    take = TlsConnection.buffer_updated

    def counted(self: TlsConnection, nbytes: int) -> None:
        wakes.append(nbytes)
        take(self, nbytes)

    monkeypatch.setattr(TlsConnection, "buffer_updated", counted)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(tmp_path).wrap_bio(incoming, outgoing, server_hostname="broker.example")

    async def check() -> None:
        async with telling_principals(listener(tmp_path)) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)

            async def done(step: Callable[[], Any], bytes_a_time: int) -> Any:
                while True:
                    result = None
                    with suppress(ssl.SSLWantReadError):
                        result = step() or True
                    said = outgoing.read()
                    for begin in range(0, len(said), bytes_a_time):
                        writer.write(said[begin : begin + bytes_a_time])
                        # The server, on the same loop, would hear of it by then.
                        for _ in range(3):
                            await asyncio.sleep(0)
                    if result is not None:
                        return result
                    incoming.write(await reader.read(65_536))

            async with asyncio.timeout(PATIENCE_S):
                await done(client.do_handshake, 1)
                in_handshake = list(wakes)
                client.write(metadata_request("t", 1))
                assert b"User:ANONYMOUS" in await done(lambda: client.read(65_536), 1000)
            # Three records: their first bytes, the rest of their heads, the rest of them.
            assert len(in_handshake) <= 9, in_handshake
            writer.close()

    run(check)


def test_a_thousand_first_messages_at_once_hold_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To hand one over to a thread takes longer than to read it. Somebody at another address is next."""
    count, others = 300, "127.0.0.2"
    handed_over: list[Future[None]] = []

    class Threads:
        def submit(self, step: Callable[[], None]) -> Future[None]:
            handed_over.append(Future())
            return handed_over[-1]

    monkeypatch.setattr(tls, "_threads", Threads)
    outgoing = ssl.MemoryBIO()
    client = client_context(tmp_path).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker.example")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()

    async def check() -> None:
        async with telling_principals(listener(tmp_path)) as (server, host, port), asyncio.timeout(PATIENCE_S):
            peers = [socket.create_connection((host, port)) for _ in range(count)]
            peers.append(socket.create_connection((host, port), source_address=(others, 0)))

            def waiting() -> list[TlsConnection]:
                return [
                    each for each in server.connections if isinstance(each, TlsConnection) and each._is_shaking_hands
                ]

            for peer in peers:
                peer.sendall(hello)
            while len(waiting()) <= count:
                await asyncio.sleep(0)
            assert len(handed_over) == tls._HANDED_OVER_MAX
            for _ in range(2):
                handed_over.pop(0).set_exception(ssl.SSLError("enough"))
            while any(each.session.host == others for each in waiting()):
                assert len(handed_over) <= tls._HANDED_OVER_MAX
                handed_over.pop(0).set_exception(ssl.SSLError("enough"))
                await asyncio.sleep(0)
            assert len(waiting()) > count - 2 * tls._HANDED_OVER_MAX - 2
            for peer in peers:
                peer.close()
            while waiting():
                while handed_over:
                    handed_over.pop(0).set_exception(ssl.SSLError("enough"))
                await asyncio.sleep(0)

    run(check)


def test_addresses_of_one_ipv6_network_take_their_turns_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has one such address mostly has the other 2⁶⁴ of its network, too."""
    begun: list[str] = []
    handshakes = tls._Handshakes()
    monkeypatch.setattr(tls, "_HANDED_OVER_MAX", 0)
    for host in ("2001:db8::1", "2001:db8::2", "2001:db8:0:0:ff::3", "2001:db8:0:1::4", "192.0.2.5", "192.0.2.6"):
        peer: Any = SimpleNamespace(session=session(address_in_java(host)), begin_step=partial(begun.append, host))
        handshakes.put(peer)
    monkeypatch.setattr(tls, "_HANDED_OVER_MAX", 1)
    handshakes._go_on()
    of_others = ["2001:db8:0:1::4", "192.0.2.5", "192.0.2.6"]
    assert begun == ["2001:db8::1", *of_others, "2001:db8::2", "2001:db8:0:0:ff::3"]


def test_a_new_certificate_is_for_new_connections(tmp_path: Path) -> None:
    async def shown(host: str, port: int) -> int:
        _, writer = await connected(host, port, client_context(tmp_path))
        certificate: dict[str, Any] = writer.get_extra_info("peercert")
        writer.close()
        return int(certificate["serialNumber"], 16)

    async def check() -> None:
        first = CA.sign("broker", ["broker.example"])
        policy = TlsListener(config(tmp_path, own=first), "SSL", SecurityProtocol.SSL)
        async with serving({ApiKey.METADATA: answer_with_name}, tls=policy) as (_, host, port):
            reader, writer = await connected(host, port, client_context(tmp_path))
            assert await shown(host, port) == first.certificate.serial_number
            second = CA.sign("broker", ["broker.example", "more.example"])
            policy.reload(config(tmp_path, own=second))
            assert await shown(host, port) == second.certificate.serial_number
            for refused in (CA.sign("other", ["broker.example", "more.example"]), first):
                policy.reload(config(tmp_path, own=refused))
                assert await shown(host, port) == second.certificate.serial_number
            writer.write(metadata_request("t", 5))
            assert correlation_ids([await read_frame(reader)]) == [5]
            writer.close()

    run(check)


def test_what_many_half_handshakes_took_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 45 kB in pieces: malloc would keep them for good."""
    count = 300
    monkeypatch.setattr(server_module, "GIVEN_BACK_AFTER", count)
    outgoing = ssl.MemoryBIO()
    client = client_context(tmp_path).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker.example")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()

    async def check() -> None:
        async with telling_principals(listener(tmp_path)) as (server, host, port):
            before_kb, writers = anonymous_kb(), []
            for _ in range(count):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(hello)
                await reader.readexactly(1)
                writers.append(writer)
            held_kb = anonymous_kb() - before_kb
            for writer in writers:
                writer.transport.abort()
            async with asyncio.timeout(30):
                while server.connections:
                    await asyncio.sleep(0.01)
            del reader, writer
            writers.clear()
            await server._give_memory_back()
            left_kb = anonymous_kb() - before_kb
            assert left_kb < held_kb / 2, (held_kb, left_kb)

    run(check)
