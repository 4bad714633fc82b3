"""Legal but hostile clients, one kind after the other and all at once: the broker frees everything when they are gone.

``make test`` runs it briefly. ``make soak`` runs it longer, and also cuts the network of clients.
``KLAMM_HOSTILE_MINUTES=60`` goes on for an hour.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator

import pytest
from guest_cluster import GuestCluster
from hostile_clients import Held, HostileClients, held_by
from soak import SOAK, rounds
from wire_client import WireClient, create_topic, fetch, produce

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

pytestmark = pytest.mark.usefixtures("many_files")

ROUNDS = rounds("KLAMM_HOSTILE_ROUNDS", 1)
MINUTES = float(os.environ.get("KLAMM_HOSTILE_MINUTES", "0"))
"""Further rounds follow until this much time has passed."""
SEED = int(os.environ.get("KLAMM_FAULT_SEED", "1"))
GONE_WITHIN_S = 20.0
"""For half-closed and reset peers: five seconds is usual, and a loaded machine needs much more."""
VANISHED_WITHIN_S = 60.0
OWN_SOCKETS = 4
"""The broker's own connections, which come and go."""
ANSWER_WITHIN_S = 10.0
MEGABYTE = 1_000_000
MEMORY_AT_WORST = 60 * MEGABYTE
MEMORY_LEFT = 25 * MEGABYTE
"""Seen: 3 MB in three rounds, then about 1 MB in five.

Only fetch sessions grow inside, and a cache bounds their number. The rest is free memory that malloc keeps.
"""
BATCH = encode_batch([Record(value=b"v" * 50_000, timestamp_ms=int(time.time() * 1000))])


@pytest.fixture(scope="module")
def broker(zookeeper: EmbeddedZooKeeper) -> Iterator[LocalCluster]:
    settings = {
        "log.segment.bytes": "100000",
        "log.segment.delete.delay.ms": "500",
        "log.retention.check.interval.ms": "1000",
    }
    with GuestCluster(zookeeper, 1, config=settings) as cluster:
        create_topic(cluster.bootstrap_servers, "wide", partitions=100)
        create_topic(cluster.bootstrap_servers, "empty")
        yield cluster


class Bystander:
    """A well-behaved client, in a thread of its own. It always gets its answers."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander")
        self.longest_s = 0.0
        self.answers = 0

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        with WireClient(self._address) as client:
            while not self._end.wait(0.02):
                begun_s = time.monotonic()
                assert produce(client, "of-the-bystander", BATCH).error_code == ErrorCode.NONE
                self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
                self.answers += 1


def one_round(broker: LocalCluster, numbers: random.Random) -> int:
    """Let all kinds do their worst to a topic, then delete it; return the memory held at the worst moment."""
    address, pid = broker.bootstrap_servers, broker.broker(0).pid
    assert pid is not None
    full = f"full-{numbers.random()}"
    create_topic(address, full)
    with WireClient(address) as client:
        for _ in range(20):
            assert produce(client, full, BATCH).error_code == ErrorCode.NONE
        assert len(fetch(client, full, 0).records) > 0
    most = 0
    with HostileClients(address, full=full, empty="empty", numbers=numbers) as clients:
        kinds = [
            lambda: clients.wait_for_ever_in_pipelined_sessions(15),
            lambda: clients.queue_answers_behind_one_that_waits(10),
            lambda: clients.close_one_half(20),
            lambda: clients.read_nothing(10),
            lambda: clients.read_slowly(20),
            lambda: clients.send_half(40),
            lambda: clients.say_nothing(500),
            lambda: clients.join_and_go(20),
        ]
        numbers.shuffle(kinds)
        for kind in kinds:
            kind()
            most = max(most, held_by(pid).anonymous_bytes)
        with WireClient(address) as client:
            request = DeleteTopicsRequest(topic_names=[full], timeout_ms=20_000)
            assert client.ask(request, 3).responses[0].error_code == ErrorCode.NONE
            assert client.ask(MetadataRequest(topics=None), 8).brokers
        return max(most, held_by(pid).anonymous_bytes)


def test_when_they_are_gone_so_is_all_that_they_cost(broker: LocalCluster) -> None:
    address, pid = broker.bootstrap_servers, broker.broker(0).pid
    assert pid is not None
    create_topic(address, "of-the-bystander", configs={"retention.bytes": "100000"})
    numbers = random.Random(SEED)
    with Bystander(address) as bystander:
        quiet = held_by(pid)
        # What the broker makes once, such as caches and lazily loaded code, does not count.
        one_round(broker, numbers)
        wait_until_gone(pid, quiet, GONE_WITHIN_S)
        before = held_by(pid)
        for number in numbered_rounds():
            most = one_round(broker, numbers)
            assert most - before.anonymous_bytes < MEMORY_AT_WORST
            wait_until_gone(pid, quiet, GONE_WITHIN_S)
            print(f"round {number}: {held_by(pid)}, {most} bytes at worst", flush=True)
        if SOAK > 1:
            lose_networks(broker, numbers)
            wait_until_gone(pid, quiet, VANISHED_WITHIN_S)
        after = held_by(pid)
    print(
        f"{number + 1} rounds, seed {SEED}: {before} then {after}; "
        f"a bystander waited {bystander.longest_s:.2f} s at most"
    )
    assert after.anonymous_bytes - before.anonymous_bytes < MEMORY_LEFT, (before, after)
    assert bystander.answers > 10 and bystander.longest_s < ANSWER_WITHIN_S


def numbered_rounds() -> Iterator[int]:
    end_s = time.monotonic() + MINUTES * 60
    return itertools.takewhile(lambda n: n < ROUNDS or time.monotonic() < end_s, itertools.count())


def wait_until_gone(pid: int, quiet: Held, within_s: float) -> None:
    """Wait until the broker holds only a few more sockets than before, and no deleted file."""
    deadline = time.monotonic() + within_s
    while (now := held_by(pid)).sockets > quiet.sockets + OWN_SOCKETS or now.deleted:
        assert time.monotonic() < deadline, (quiet, now)
        time.sleep(0.05)


def lose_networks(broker: LocalCluster, numbers: random.Random) -> None:
    """Let clients ask for much, or wait forever, and cut their network until the broker lets them go."""
    address, pid = broker.bootstrap_servers, broker.broker(0).pid
    assert pid is not None
    create_topic(address, "lost")
    with WireClient(address) as client:
        for _ in range(20):
            assert produce(client, "lost", BATCH).error_code == ErrorCode.NONE
    before = held_by(pid)
    with HostileClients(address, full="lost", empty="empty", numbers=numbers) as clients:
        clients.vanish(100)
        deadline = time.monotonic() + GONE_WITHIN_S
        while held_by(pid).sockets < before.sockets + 90:
            assert time.monotonic() < deadline, (before, held_by(pid))
            time.sleep(0.01)
        wait_until_gone(pid, before, VANISHED_WITHIN_S)
