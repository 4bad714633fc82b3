"""Handshakes that no client should send, by the thousand: nothing is let through, and others are served meanwhile.

``KLAMM_FUZZ_ROUNDS`` (or ``KLAMM_SOAK``) makes them more, ``KLAMM_FAULT_SEED`` others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import resource
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from event_loop import staged
from login_serving import Listener, Peer, exchange, frame, listening
from network_serving import run
from soak import rounds

from engine.broker.security.sasl_mechanisms import (
    LoggedIn,
    LoginRefused,
    ServerExchange,
    oauthbearer_server,
    plain_server,
    scram_server,
    unsecured_validator,
)
from engine.kafka.client.sasl.exchange import plain_exchange
from engine.kafka.client.sasl.oauthbearer import unsecured_token
from engine.kafka.client.sasl.scram import scram_exchange
from engine.kafka.formats.scram_credential import ScramCredential
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest

ROUNDS = 1500 * rounds("KLAMM_FUZZ_ROUNDS", 1)
SEED = int(os.environ.get("KLAMM_FAULT_SEED", "34"))
AT_ONCE = 50
WITHOUT_OPEN_DOOR = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
"""Anybody can make an unsecured token, so mutations could."""
MEMORY_MB_MAX = 60
"""The tests' own peers included."""
PATIENCE_S = 120.0


def mutated(draw: random.Random, frames: list[bytes]) -> bytes:
    """Return frames with something wrong: order, length, bytes, or other people's requests among them."""
    frames = list(frames)
    for _ in range(draw.randint(1, 3)):
        position = draw.randrange(len(frames))
        data = bytearray(frames[position])
        kind = draw.randrange(8)
        if kind == 0 and data:
            for _ in range(draw.randint(1, 4)):
                data[draw.randrange(len(data))] = draw.randrange(256)
        elif kind == 1:
            del data[draw.randrange(len(data) + 1) :]
        elif kind == 2:
            data[:4] = struct.pack(
                ">i", draw.choice((-1, 0, 1, 7, 8, 524_288, 524_289, 2**31 - 1, draw.randrange(2**31)))
            )
        elif kind == 3:
            data = bytearray(draw.randbytes(draw.randint(1, 300)))
        elif kind == 4:
            where = draw.randrange(len(data) + 1)
            data[where:where] = draw.randbytes(draw.randint(1, 20))
        elif kind == 5:
            frames.insert(position, draw.choice(OTHERS))
            continue
        elif kind == 6:
            frames.insert(position, frames[draw.randrange(len(frames))])
            continue
        else:
            draw.shuffle(frames)
            continue
        frames[position] = bytes(data)
    return b"".join(frames)


OTHERS = [
    frame(MetadataRequest(topics=[]), 4),
    frame(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3),
    frame(SaslHandshakeRequest(mechanism="NONE"), 1),
    frame(SaslAuthenticateRequest(auth_bytes=b""), 2),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\n\r\n",
]


def scripts(draw: random.Random) -> list[bytes]:
    """Return the frames of somebody who tries to log in without a right password, and then asks for metadata."""
    mechanism = draw.choice(WITHOUT_OPEN_DOOR.split(","))
    version = draw.randrange(2)
    first = next(exchange(mechanism, f"guess-{draw.randrange(10**9)}"))
    tokens = [first, b"c=biws,r=" + draw.randbytes(12).hex().encode() + b",p=cHJvb2Y="][: draw.randint(1, 2)]
    sent = [frame(SaslHandshakeRequest(mechanism=mechanism), version)]
    for token in tokens:
        bare = struct.pack(">i", len(token)) + token
        sent.append(bare if version == 0 else frame(SaslAuthenticateRequest(auth_bytes=token), draw.randrange(3)))
    return [*sent, frame(MetadataRequest(topics=[]), 4)]


@pytest.fixture(autouse=True)
def nothing_breaks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No handler fails, and nothing is left of what an attack held."""
    # pytest keeps each line, and the peers' faults would be 100 MB of them in a long run.
    with caplog.at_level(logging.ERROR, "engine.broker.network.connection"), caplog.at_level(logging.WARNING):
        yield
    broken = [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    assert not broken, broken[:3]


@asynccontextmanager
async def watched(listener: Listener) -> Any:
    """Have somebody who is in ask all the time; check who is served before, and what memory the attack took."""
    good, loop, waits_ms, overtaken = await listener.logged_in(), asyncio.get_running_loop(), [], []

    async def ask() -> None:
        while True:
            begin, (handled, _) = loop.time(), listener.totals.received()
            assert await good.principal() == "User:alice"
            waits_ms.append((loop.time() - begin) * 1000)
            overtaken.append(listener.totals.received()[0] - handled - 1)
            await asyncio.sleep(0.01)

    memory_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    waits_ms.sort()
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kb) / 1024
    p99 = waits_ms[len(waits_ms) * 99 // 100]
    print(
        f"a good client: {len(waits_ms)} answers, p50 {waits_ms[len(waits_ms) // 2]:.1f} ms, p99 {p99:.1f} ms, "
        f"worst {waits_ms[-1]:.1f} ms, behind at most {max(overtaken)} requests; memory {grown_mb:+.0f} MB"
    )
    # How long that takes depends on the machine. Each attacker may have had its turn before, and hardly another.
    assert max(overtaken) <= 3 * AT_ONCE
    assert grown_mb < MEMORY_MB_MAX
    async with asyncio.timeout(PATIENCE_S):
        while len(listener.server.connections) > 1:
            await asyncio.sleep(0.01)


async def by_turns(count: int, work: Callable[[int], Awaitable[None]]) -> None:
    """Run the work for each number, some at the same time."""
    async with asyncio.timeout(PATIENCE_S * (1 + count / 1000)):
        for begin in range(0, count, AT_ONCE):
            await asyncio.gather(*map(work, range(begin, min(begin + AT_ONCE, count))))


async def answers_to(listener: Listener, data: bytes, pieces: int = 1) -> bytes:
    """Send bytes and nothing more, and return all that comes back before the connection ends."""
    reader, writer = await asyncio.open_connection(listener.host, listener.port)
    try:
        for begin in range(0, len(data), -(-len(data) // pieces) or 1):
            writer.write(data[begin : begin + (-(-len(data) // pieces) or 1)])
            await asyncio.sleep(0)
        writer.write_eof()
        return await reader.read()
    except (OSError, RuntimeError):
        # uvloop's complaint about a connection that the server has ended meanwhile.
        return b""
    finally:
        writer.close()


@staged(run)
async def test_mutated_handshakes_let_nobody_in() -> None:
    async with listening(sasl_enabled_mechanisms=WITHOUT_OPEN_DOOR) as listener, watched(listener):

        async def attack(number: int) -> None:
            draw = random.Random(f"{SEED} {number}")
            answer = await answers_to(listener, mutated(draw, scripts(draw)), draw.randint(1, 3))
            assert b"User:" not in answer, (number, answer)

        await by_turns(ROUNDS, attack)


@staged(run)
async def test_mutated_handshakes_of_somebody_who_is_in_change_nothing_about_who_it_is() -> None:
    """By a login that ends, so that renewals are among what is mutated."""
    settings = {"sasl_enabled_mechanisms": WITHOUT_OPEN_DOOR, "connections_max_reauth_ms": "60000"}
    async with listening(**settings) as listener, watched(listener):

        async def attack(number: int) -> None:
            draw = random.Random(f"{SEED} {number}")
            peer = await listener.connect()
            mechanism = draw.choice(WITHOUT_OPEN_DOOR.split(","))
            assert (await peer.log_in(mechanism, exchange(mechanism))).error_code == 0
            bobs = [frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
                    frame(SaslAuthenticateRequest(auth_bytes=b"\0bob\0bob-pw"), 2)]  # fmt: skip
            peer.send(mutated(draw, [*scripts(draw), *bobs, frame(MetadataRequest(topics=[]), 4)]))
            answer = await rest_of(peer)
            assert b"User:bob" not in answer.replace(b"from User.alice: User.bob", b""), (number, answer)
            listener.forget(peer)

        await by_turns(ROUNDS, attack)


async def rest_of(peer: Peer) -> bytes:
    try:
        peer._writer.write_eof()
        return await peer._reader.read()
    except (OSError, RuntimeError):
        return b""


def exchanges(draw: random.Random) -> tuple[ServerExchange, list[bytes]]:
    """Return the server's side of a login, and tokens that a client sends in it."""
    credential = ScramCredential.of_salted_password("SCRAM-SHA-256", b"salt", b"salted", 4096)
    kind = draw.randrange(3)
    if kind == 0:
        return plain_server({"alice": "right"}), [b"\0alice\0wrong"]
    if kind == 1:
        client = next(scram_exchange("SCRAM-SHA-256", "alice", "wrong", is_token=bool(draw.randrange(2))))
        server = scram_server("SCRAM-SHA-256", lambda name, by: (credential, LoggedIn(name)))
        return server, [client, b"c=biws,r=nonce,p=cHJvb2Y="]
    token = unsecured_token({"unsecuredLoginStringClaim_sub": "alice"}, now_s=1)
    validator = unsecured_validator({}, lambda: 10**13)
    return oauthbearer_server(validator), [f"n,,\x01auth=Bearer {token}\x01\x01".encode(), b"\x01"]


def test_mutated_tokens_end_in_a_refusal_and_in_nothing_else() -> None:
    for number in range(10 * ROUNDS):
        draw = random.Random(f"{SEED} {number}")
        server, tokens = exchanges(draw)
        next(server)
        with pytest.raises(LoginRefused):
            for token in tokens:
                data = bytearray(token)
                for _ in range(draw.randint(1, 5)):
                    where = draw.randrange(len(data) + 1)
                    data[where : where + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
                server.send(bytes(data))
            server.close()
            raise LoginRefused("it asked for more, and no more came")


@staged(run)
async def test_wrong_passwords_by_the_thousand() -> None:
    async with listening(sasl_enabled_mechanisms=WITHOUT_OPEN_DOOR) as listener, watched(listener):

        async def attack(number: int) -> None:
            peer = await listener.connect()
            mechanism = WITHOUT_OPEN_DOOR.split(",")[number % 3]
            answer = await peer.log_in(mechanism, exchange(mechanism, f"guess-{number}"))
            assert answer.error_code == 58
            assert await peer.is_hung_up()
            listener.forget(peer)

        await by_turns(ROUNDS, attack)


@staged(run)
async def test_half_a_handshake_held_open_by_hundreds_holds_up_nobody() -> None:
    """Silent ones, ones that announce 100 MB, and ones that stop in the middle of a login."""
    beginnings = [
        b"",
        b"\x00",
        struct.pack(">i", 104_857_600) + bytes(1000),
        struct.pack(">i", 524_288) + bytes(100_000),
        frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1),
        frame(SaslHandshakeRequest(mechanism="PLAIN"), 0) + struct.pack(">i", 524_288) + bytes(50_000),
    ]
    async with listening() as listener, watched(listener):
        held = []
        for number in range(500):
            peer = await listener.connect()
            peer.send(beginnings[number % len(beginnings)])
            held.append(peer)
        for _ in range(20):
            fresh = await listener.connect()
            assert (await fresh.log_in("PLAIN", plain_exchange("alice", "alice-pw"))).error_code == 0
            assert await fresh.principal() == "User:alice"
            fresh.close()
        for peer in held:
            peer.close()
