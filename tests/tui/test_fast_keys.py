"""Keys that come faster than windows open: each goes where the person meant it, in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from dashboards import Driven, dashboard, drive
from event_loop import staged
from textual import events
from textual.keys import key_to_character
from textual.widgets import Input

from engine.admin.cluster.target import ClusterTarget, Origin
from tui.dialogs.confirm import ConfirmDialog
from tui.operations.operation import Prepared
from tui.terminal import KeyParser

TARGET = ClusterTarget("first", Origin.OPTIONS, bootstrap=(("k", 1),))


def shown(look: Callable[[Driven], Awaitable[None]], **options: object) -> None:
    async def run() -> None:
        async with dashboard("live", target=TARGET, **options) as driven:  # type: ignore[arg-type]
            await look(driven)

    drive(run)


def send(driven: Driven, *keys: str) -> None:
    """Press all of these before the first is handled."""
    for key in keys:
        driven.app.post_message(events.Key(key, key if len(key) == 1 else key_to_character(key)))


@staged(shown)
async def test_the_row_is_opened_that_the_cursor_was_moved_to(driven: Driven, /) -> None:
    send(driven, "3", "j", "down", "enter")
    await driven.settled()
    assert driven.main.location.topic == "clicks"


@staged(shown, page="topics")
async def test_what_is_typed_while_a_form_opens_stands_in_its_field(driven: Driven, /) -> None:
    send(driven, "plus", "backspace", "6", "7")
    await driven.settled()
    assert driven.main.location.page == "topics", "6 is no key of the screen below"
    assert [field.value for field in driven.app.screen.query(Input)] == ["67"]
    await driven.press("escape")
    send(driven, "N", *"new", "enter", "3", "down", "2", "backspace", "1", "up", "up", "end", "a")
    await driven.settled()
    assert [field.value for field in driven.app.screen.query(Input)] == ["newa", "3", "1", ""]


@staged(shown)
async def test_a_command_and_a_filter_can_be_typed_in_one_go(driven: Driven, /) -> None:
    send(driven, "colon", *"t", "space", *"orders", "enter")
    await driven.until(lambda: driven.main.location.topic == "orders")
    send(driven, "slash", *"q1D", "enter")
    await driven.settled()
    assert driven.main.model.filter.text == "q1D"
    assert driven.main.location.topic == "orders"


@staged(shown)
async def test_a_window_is_closed_by_a_key_that_came_before_it_was_drawn(driven: Driven, /) -> None:
    send(driven, "question_mark", "escape", "2")
    await driven.until(lambda: driven.app.screen is driven.main)
    assert driven.main.location.page == "brokers"


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("\x1b2", ["escape", "2"]),
        ("\x1bj\x1bD", ["escape", "j", "escape", "D"]),
        ("\x1b\r", ["escape", "enter"]),
        ("\x1b/x", ["escape", "slash", "x"]),
        ("\x1b\x1b", ["escape", "escape"]),
        ("\x1bj\x1b[B", ["escape", "j", "down"]),
        ("\x1bm", ["alt+m"]),
        ("\x1b3", ["alt+3"]),
        ("\x1bO", ["escape", "O"]),
        ("\x1b\x7f", ["ctrl+w"]),
        ("\x1b[B", ["down"]),
        ("\x1bOB", ["down"]),
    ],
)
def test_esc_and_the_key_behind_it_are_two_keys(sent: str, keys: list[str]) -> None:
    for pieces in ([sent], list(sent)):
        parser = KeyParser({"alt+m", "alt+3", "escape"})
        parsed = [event for piece in (*pieces, "") for event in parser.feed(piece)]
        assert [event.key for event in parsed if isinstance(event, events.Key)] == keys


@staged(shown, page="topics")
async def test_what_is_typed_while_the_palette_opens_is_searched_for_and_carried_out(driven: Driven, /) -> None:
    send(driven, "ctrl+p", *"brokers", "enter")
    await driven.until(lambda: driven.main.location.page == "brokers")
    await driven.until(lambda: driven.app.screen is driven.main)


@staged(shown)
async def test_nobody_agrees_to_a_change_that_is_not_shown_yet(driven: Driven, /) -> None:
    answers: list[bool | None] = []
    driven.app.push_screen(ConfirmDialog(Prepared("Elect?")), answers.append)
    send(driven, "y")
    await driven.settled()
    assert answers == []
    lost = ["y came too early for this window: press it again"]
    assert [notification.message for notification in driven.app._notifications] == lost, "no key is lost without a word"
    await driven.press("y")
    await driven.until(lambda: answers == [True])
