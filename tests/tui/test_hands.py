"""Keys that hands know from elsewhere, and finding things by a part of their names."""

from __future__ import annotations

import pytest
from dashboards import dashboard
from event_loop import in_event_loop
from textual.widgets import Input

from tui.actions import Action, Group, Registry, help_lines
from tui.dialogs.menu import suggestions
from tui.drawing.lines import width_of
from tui.state.location import Location


@in_event_loop
async def test_the_cursor_moves_as_in_vim() -> None:
    async with dashboard("live", page="partitions") as driven:
        await driven.tick()
        model, last = driven.main.model, len(driven.main.model.shown) - 1
        for key, at in (("j", 1), ("j", 2), ("k", 1), ("G", last), ("g", 0), ("ctrl+d", None), ("ctrl+u", 0)):
            await driven.press(key)
            assert model.cursor == at or (at is None and 5 < model.cursor < last), key


@in_event_loop
async def test_a_key_that_does_nothing_here_says_where_it_works() -> None:
    async with dashboard("live", page="timeline") as driven:
        await driven.tick()
        for key, message in (
            ("E", "E does nothing here: elect on 1 2 3 4"),
            ("R", "R does nothing here: retire on 1 2, resume on 1 6 7"),
        ):
            await driven.press(key)
            assert message in " ".join(note.message for note in driven.app._notifications), key


@in_event_loop
async def test_long_texts_scroll_as_in_vim() -> None:
    async with dashboard("live", size=(80, 24), page="topics") as driven:
        await driven.press("question_mark", "G")
        await driven.until(lambda: "move the cursor" in driven.drawn)
        await driven.press("g")
        await driven.until(lambda: "This screen" in driven.drawn)


@in_event_loop
async def test_a_command_completes_the_names_of_what_there_is() -> None:
    def named(page: str) -> list[str]:
        return {"topics": ["old-orders", "orders", "clicks"]}.get(page, [])

    registry = Registry()
    assert suggestions("t ord", registry, named) == ["t orders", "t old-orders"]
    assert suggestions("topic CLI", registry, named) == ["topic clicks"]
    assert suggestions("t none", registry, named) == []
    assert suggestions("plan x", registry, named) == []
    async with dashboard("live") as driven:
        await driven.tick()
        await driven.press("colon")
        await driven.type("t ord")
        await driven.press("tab")
        await driven.until(lambda: driven.app.screen.query_one("#command", Input).value == ":t orders")
        await driven.press("enter")
        assert driven.main.location == Location("partitions", topic="orders")


@pytest.mark.parametrize(
    ("typed", "location"),
    [("payme", Location("partitions", topic="payments")), ("nightly", Location("group", group="nightly-report")),
     ("broker 3", Location("partitions", broker=3))],
)  # fmt: skip
@in_event_loop
async def test_the_palette_finds_what_the_cluster_has(typed: str, location: Location) -> None:
    async with dashboard("live") as driven:
        await driven.tick()
        await driven.press("ctrl+p")
        await driven.type(typed)
        await driven.press("enter")
        await driven.until(lambda: driven.main.location == location)


def test_why_the_keys_of_a_group_do_nothing_stands_beside_its_title() -> None:
    def why_not(action: Action) -> str:
        return "this is not a recording" if action.group is Group.RECORDING else ""

    texts = ["".join(text for text, _ in line) for line in help_lines(Registry().on_page("brokers"), why_not, 80)]
    assert any("Recording   this is not a recording" in text for text in texts)
    assert not any("dim keys" in text for text in texts), "all keys of this screen work"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_help_begins_with_this_screen_and_names_every_key(width: int) -> None:
    actions = Registry().on_page("brokers")
    lines = help_lines(actions, lambda action: "", width)
    texts = ["".join(text for text, _ in line) for line in lines]
    assert texts[0] == "This screen"
    own = [action for action in actions if action.pages]
    assert all(action.help in texts[1 + at] for at, action in enumerate(own))
    assert all(any(action.title in text for text in texts) for action in actions)
    assert all(width_of(line) <= width for line in lines[len(own) + 2 : -1])
