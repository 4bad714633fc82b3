"""Watches: which events callers get, in which order, and that no event is missed over reconnects and sessions."""

from __future__ import annotations

import asyncio

import pytest
from event_loop import in_event_loop

from engine.kafka.zk import client as zk_client
from engine.kafka.zk.session_keeper import SessionEvent
from engine.kafka.zk.watches import WatchEvent, WatchEventKind
from engine.runtime.turns import Breather


def _kinds(events: list[WatchEvent]) -> list[WatchEventKind]:
    return [event.kind for event in events]


@in_event_loop
async def test_very_many_watches_are_told_of_a_new_session_in_turns(connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 held the loop for 96 ms of CPU."""
    turns = 0

    class Counting(Breather):
        async def give_way(self) -> None:
            nonlocal turns
            turns += 1

    monkeypatch.setattr(zk_client, "Breather", Counting)
    async with connect() as client:
        events: list[WatchEvent] = []
        for number in range(50):
            client.watch_data(f"/{number}", events.append)
        await client._rearm(client._keeper.current())
        assert len(events) == turns == 50


@in_event_loop
async def test_life_of_a_znode_is_told_without_reading_again(connect, until) -> None:
    async with connect() as client, connect() as other:
        events: list[WatchEvent] = []
        client.watch_data("/a", events.append)
        assert await client.exists("/a") is None
        for step, kind in (
            (other.create("/a", b"1"), WatchEventKind.CREATED),
            (other.set("/a", b"2"), WatchEventKind.DATA_CHANGED),
            (other.delete("/a"), WatchEventKind.DELETED),
            (other.create("/a", b"3"), WatchEventKind.CREATED),
        ):
            count = len(events)
            await step
            await until(lambda count=count: len(events) > count)
            assert events[-1] == WatchEvent("/a", kind)
            # A request that is on its way sets the watch again. An answer after it proves that the watch is set.
            await client.exists("/")


@in_event_loop
async def test_reading_a_missing_znode_arms_its_creation(connect, until) -> None:
    async with connect() as client, connect() as other:
        events: list[WatchEvent] = []
        client.watch_data("/a", events.append)
        assert len(await client.get_many(["/a"])) == 1
        try:
            await client.get("/a")
        except Exception as error:
            assert "No such znode" in str(error)
        await other.create("/a", b"")
        await until(lambda: events)
        assert _kinds(events) == [WatchEventKind.CREATED]


@in_event_loop
async def test_children_callbacks_are_armed_by_each_read(connect, until) -> None:
    async with connect() as client, connect() as other:
        events: list[WatchEvent] = []
        await client.create("/dir", b"")
        client.watch_children("/dir", events.append)
        await client.children("/dir")
        await other.create("/dir/a", b"")
        await until(lambda: len(events) == 1)
        await other.create("/dir/b", b"")
        await client.sync()
        assert len(events) == 1
        await client.children("/dir")
        await other.delete("/dir/a")
        await until(lambda: len(events) == 2)
        assert set(_kinds(events)) == {WatchEventKind.CHILDREN_CHANGED}
        await other.delete("/dir/b")
        await client.children("/dir")
        await other.delete("/dir")
        await until(lambda: len(events) == 3)
        assert events[-1].kind is WatchEventKind.DELETED


@in_event_loop
async def test_forgotten_callbacks_are_not_called(connect, until) -> None:
    async with connect() as client:
        kept: list[WatchEvent] = []
        dropped: list[WatchEvent] = []
        client.watch_data("/a", dropped.append)
        client.watch_data("/a", kept.append)
        await client.exists("/a")
        client.unwatch("/a", dropped.append)
        await client.create("/a", b"")
        await until(lambda: kept)
        client.unwatch("/a")
        await client.set("/a", b"")
        await client.sync()
        assert (len(kept), dropped) == (1, [])


def test_a_failing_callback_does_not_harm_the_others(connect, until, caplog) -> None:
    async def run() -> None:
        async with connect() as client:
            events: list[WatchEvent] = []

            def fail(event: WatchEvent) -> None:
                raise ValueError("on purpose")

            client.watch_data("/a", fail)
            client.watch_data("/a", events.append)
            await client.exists("/a")
            await client.create("/a", b"")
            await until(lambda: events)

    asyncio.run(run())
    assert "A watch callback failed. path=/a kind=created" in caplog.text


@in_event_loop
async def test_no_event_comes_after_an_answer_that_is_newer(connect) -> None:
    """The order on the wire: whoever has read the new data got the event of the change first."""
    async with connect() as client, connect() as writer:
        events: list[WatchEvent] = []
        await client.create("/a", b"0")
        client.watch_data("/a", events.append)
        late = 0
        for number in range(1, 2_001):
            _, before = await client.get("/a")
            del events[:]
            write = asyncio.ensure_future(writer.set("/a", b"%d" % number))
            while True:
                _, stat = await client.get("/a")
                if stat.version > before.version:
                    late += not events
                    break
            await write
        assert late == 0


@in_event_loop
async def test_events_are_not_overtaken_by_answers_of_the_same_burst(connect) -> None:
    """An older answer reaches its task before a later event reaches its callback."""
    async with connect() as client:
        order: list[str] = []
        client.watch_data("/a", lambda event: order.append(f"event {event.kind.value}"))

        async def step(name: str, call) -> None:
            await call
            order.append(name)

        for round_number in range(200):
            del order[:]
            await client.exists("/a")
            await asyncio.gather(
                step("read", client.exists("/b")),
                step("created", client.create("/a", b"")),
                step("read again", client.get_many(["/b", "/b"])),
            )
            assert order == ["read", "event created", "created", "read again"], round_number
            await client.delete("/a")


@in_event_loop
async def test_changes_during_a_broken_connection_are_told_after_it(connect, until) -> None:
    async with connect() as client, connect() as other:
        events: list[WatchEvent] = []
        session_events: list[SessionEvent] = []
        client.add_session_listener(session_events.append)
        for path in ("/changed", "/deleted", "/same"):
            await client.create(path, b"")
        await client.create("/parent", b"")
        for path in ("/changed", "/deleted", "/created", "/same"):
            client.watch_data(path, events.append)
        client.watch_children("/parent", events.append)
        await client.exists_many(["/changed", "/deleted", "/created", "/same"])
        await client.children("/parent")
        session_id = client.session_id
        client.break_connection()
        await other.set("/changed", b"x")
        await other.delete("/deleted")
        await other.create("/created", b"")
        await other.create("/parent/child", b"")
        await until(lambda: len(events) == 4)
        assert {(event.path, event.kind) for event in events} == {
            ("/changed", WatchEventKind.DATA_CHANGED),
            ("/deleted", WatchEventKind.DELETED),
            ("/created", WatchEventKind.CREATED),
            ("/parent", WatchEventKind.CHILDREN_CHANGED),
        }
        # The watch of what did not change stays set on the new connection.
        await other.set("/same", b"x")
        await until(lambda: events[-1] == WatchEvent("/same", WatchEventKind.DATA_CHANGED))
        assert client.session_id == session_id
        assert session_events == [SessionEvent.SUSPENDED, SessionEvent.RECONNECTED]


@in_event_loop
async def test_thousands_of_watches_survive_a_reconnect(connect, until) -> None:
    async with connect() as client, connect() as other:
        events: list[WatchEvent] = []
        paths = [f"/watched-{number:05}" for number in range(3_000)]
        for path in paths:
            client.watch_data(path, events.append)
        await client.exists_many(paths)
        client.break_connection()
        await client.sync()
        await other.create(paths[0], b"")
        await other.create(paths[-1], b"")
        await until(lambda: len(events) == 2)


@in_event_loop
async def test_new_session_arms_again_and_tells_to_look(connect, end_session, until) -> None:
    async with connect() as client, connect() as other:
        events: list[WatchEvent] = []
        await client.create("/parent", b"")
        client.watch_data("/a", events.append)
        client.watch_children("/parent", events.append)
        await client.exists("/a")
        await client.children("/parent")
        await end_session(client)
        await until(lambda: len(events) == 2)
        assert events == [
            WatchEvent("/a", WatchEventKind.NEW_SESSION),
            WatchEvent("/parent", WatchEventKind.NEW_SESSION),
        ]
        del events[:]
        await other.create("/a", b"")
        await other.create("/parent/b", b"")
        await until(lambda: len(events) == 2)
