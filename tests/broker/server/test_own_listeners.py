"""Listeners that open and close while a broker runs; ``interop/test_listeners_on_kafka.py`` asks Kafka the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_program import BrokerProgram, settings
from certificates import Authority
from listener_changes import LATER, LOGINS, ChangingListeners, listeners_come_and_go

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

PORT = 21292


class World:
    """A broker that can start again."""

    def __init__(self, folder: Path, zookeeper: EmbeddedZooKeeper) -> None:
        host = own_loopback_address()
        self.changing = ChangingListeners(folder, host, PORT, has_logins_in_file=False)
        self._settings = settings(folder, host, f"{zookeeper.connect_string}/{folder.name}") | self.changing.settings()
        self._folder, self._stack = folder, ExitStack()
        self.start()

    def start(self) -> None:
        self.broker = self._stack.enter_context(BrokerProgram(self._folder, self._settings))
        self.broker.wait_until_started()

    def stop(self) -> None:
        if self.broker.process.poll() is None:
            assert self.broker.terminate() == 0
        self._stack.close()


@pytest.fixture
def world(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> Iterator[World]:
    world = World(tmp_path, zookeeper)
    yield world
    world.stop()
    assert "Traceback" not in world.broker.server_log


def test_they_come_and_go(world: World) -> None:
    said = listeners_come_and_go(world.changing)
    for words, each in zip(("", "Security protocol", "inter.broker", "subset", "parse", "", "", ""), said, strict=True):
        assert words in each and bool(words) == bool(each), said
    assert world.changing.change(dict.fromkeys(world.changing.opening)) == ""


def test_logins_of_an_open_listener_stay(world: World) -> None:
    """Kafka stores such a change, which has no effect, and refuses all changes of listeners from then on."""
    changing = world.changing
    assert changing.change(changing.opening) == ""
    changing.wait_until_told()
    other = changing.opening[LOGINS].replace("al1ce", "other")
    assert "existing listener ListenerName(LATER)" in changing.change({LOGINS: other})
    changing.wait_until_told()


def test_what_is_stored_counts_when_the_broker_starts(world: World) -> None:
    assert world.changing.change(world.changing.opening) == ""
    world.changing.wait_until_told()
    assert world.broker.terminate() == 0
    world.start()
    world.changing.wait_until_told()


def test_a_listener_that_cannot_be_served_is_refused_and_one_whose_address_is_taken_stays_closed(
    world: World, tmp_path: Path
) -> None:
    changing = world.changing
    for texts, words in (
        ({f"{LATER}ssl.keystore.location": str(tmp_path / "none.pem")}, "cannot be read (no such file or directory)"),
        ({LOGINS: "nonsense"}, "JAAS"),
    ):
        assert words in changing.change({**changing.opening, **texts})
    late = Authority().sign("broker", days=(-9, -2)).write_pem(tmp_path / "late.pem")
    assert "expired" in changing.change({**changing.opening, f"{LATER}ssl.keystore.location": str(late)})
    elsewhere = changing.at("PLAINTEXT", "LATER").replace(f"LATER://{changing.host}", "LATER://203.0.113.7")
    assert changing.change({**changing.opening, "listeners": elsewhere}) == ""
    world.broker.wait_until_it_says("Listener LATER stays closed")
    assert changing.change(dict.fromkeys(changing.opening)) == ""
    assert changing.change(changing.opening) == ""
    changing.wait_until_told()
