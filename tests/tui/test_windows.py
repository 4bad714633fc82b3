"""Windows with more content than room: all of it can be reached, and nothing is pushed out of sight."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from dashboards import Driven, shown
from event_loop import staged

from engine.admin.configs.values import Entity, EntityType
from tui.dialogs.confirm import ConfirmDialog, OutcomeDialog
from tui.dialogs.dialog import TextDialog, WaitDialog
from tui.dialogs.form import FormDialog
from tui.dialogs.settings import SettingsDialog
from tui.drawing.cells import Cell
from tui.operations.operation import Outcome, Prepared
from tui.operations.settings import AlterSettings, Setting
from tui.screen.offers import Ask, EditSettings, FieldNeeded

SIZES = [(80, 24), (120, 40)]
MANY = tuple(f"topic-{number}" for number in range(100))
COMMAND = "klamm topics delete " + " ".join(MANY[:20])


@pytest.mark.parametrize("size", SIZES)
def test_the_last_key_of_the_help_can_be_scrolled_to(size: tuple[int, int]) -> None:
    async def look(driven: Driven) -> None:
        await driven.press("question_mark")
        if size == SIZES[0]:
            assert "more with ↓" in driven.drawn
            assert " Quit" not in driven.drawn
        told = re.sub("[▌▁▂▃▄▅▆▇█]", " ", driven.drawn).split()
        for action_id in ("topic.create", "settings.alter", "topic.delete"):
            for word in driven.app.session.registry.named(action_id).help.split():
                assert word in told, "it is folded where the scrollbar begins, and nothing is cut"
        await driven.press("end")
        await driven.until(lambda: " Quit" in driven.drawn)

    shown(look, page="topics", size=size)


@staged(shown, size=(80, 24))
async def test_the_hint_of_a_field_can_be_read_whole_in_a_small_terminal(driven: Driven, /) -> None:
    hint = "for each broker, for example 50M; now without a throttle, so that copies take what there is"
    field = FieldNeeded("rate", "Bytes a second", hint=hint)
    driven.app.push_screen(FormDialog(Ask("Change the throttle", (field,), lambda values: None)))
    await driven.sees("Change the throttle")
    seen = [word for line in driven.drawn.splitlines() for word in line.split()]
    assert [word for word in hint.split() if word not in seen] == []


@pytest.mark.parametrize("size", SIZES)
def test_a_long_preview_leaves_room_for_the_command_and_the_name(size: tuple[int, int]) -> None:
    async def look(driven: Driven) -> None:
        prepared = Prepared("Delete 100 topics?", MANY, ("gone for good",), typed="100", command=COMMAND)
        driven.app.push_screen(ConfirmDialog(prepared))
        await driven.sees("Delete 100 topics?")
        for told in ("Delete 100 topics?", "topic-0", "topic-19", "type 100 and press enter"):
            assert told in driven.drawn, told
        await driven.press(*["pagedown"] * 10, *"10")
        assert "topic-99" in driven.drawn
        assert "gone for good" not in driven.drawn, "it was scrolled"
        await driven.press(*["pageup"] * 10, "0", "enter")
        await driven.until(lambda: driven.app.screen is driven.main)

    shown(look, size=size)


@staged(shown, size=(80, 24))
async def test_a_name_is_confirmed_as_it_is_shown(driven: Driven, /) -> None:
    """A group's id may have control characters, which nobody can type, and a terminal must not get."""
    answers: list[bool | None] = []
    prepared = Prepared("Delete group a\tb?", ("a\tb",), (), typed="a\tb", command=COMMAND)
    driven.app.push_screen(ConfirmDialog(prepared), answers.append)
    await driven.sees("type a\\tb and press enter")
    await driven.press("a", "\\", "t", "c", "enter")
    await driven.sees("that is not")
    await driven.press("backspace", "b", "enter")
    await driven.until(lambda: answers == [True])


@staged(shown, size=(80, 24), page="logs")
async def test_the_command_of_a_result_is_shown_whole(driven: Driven, /) -> None:
    rows = tuple((Cell(name), Cell("deleted")) for name in MANY)
    driven.app.push_screen(OutcomeDialog(Outcome("Delete topics", ("topic", "result"), rows), COMMAND))
    await driven.sees("Delete topics: done")
    # What is left of the window's edge is the screen below it.
    inside = "".join(line.partition("▌")[2] for line in driven.drawn.split("\n"))
    assert COMMAND.replace(" ", "") in inside.replace(" ", "")
    await driven.press("end")
    await driven.until(lambda: "topic-99" in driven.drawn)


@staged(shown)
async def test_a_window_that_closes_twice_takes_nothing_else_with_it(driven: Driven, /) -> None:
    """Work ends while another window covers its own one; that one would close itself just as a user closes it."""
    wait, cover = WaitDialog("Verify replicas", "under way …"), TextDialog("Something else", [])
    await driven.app.push_screen(wait)
    await driven.app.push_screen(cover)
    wait.finish()
    await driven.settled()
    assert "Something else" in driven.text
    cover.action_leave()
    wait.action_leave()
    await driven.until(lambda: not wait.is_attached)
    assert driven.app.screen is driven.main
    assert "Overview" in driven.drawn


@staged(shown)
async def test_an_answer_before_its_question_is_told_to_be_too_early(driven: Driven, /) -> None:
    await driven.app.push_screen(WaitDialog("Elect", "asking the cluster what would happen …"))
    await driven.settled()
    await driven.press("y")
    assert [note.message for note in driven.app._notifications] == ["y came too early for this window: press it again"]


@staged(shown)
async def test_an_answer_that_is_given_twice_counts_once(driven: Driven, /) -> None:
    answers: list[bool | None] = []
    window = ConfirmDialog(Prepared("Elect?"))
    await driven.app.push_screen(window, answers.append)
    await driven.settled()
    window.action_answer(True)
    window.action_answer(False)
    await driven.settled()
    assert answers == [True]
    assert driven.app.screen is driven.main


ORDERS = Entity(EntityType.TOPIC, "orders")
OF_ORDERS = [
    Setting("retention.ms", "86400000", "topic", "604800000", "How long records are kept.", is_own=True),
    Setting("compression.type", "producer", "Kafka", "producer", "The codec."),
    Setting("log.dirs", "/data", "broker's file", "/data", "Where logs are.", is_fixed=True),
    Setting("max.message.bytes", "1048588", "Kafka", "1048588", "The largest batch."),
]


def edited(look: Callable[[Driven, SettingsDialog, list[object]], Awaitable[None]], offer: EditSettings) -> None:
    """Show the table of settings of a topic, as a cluster told it."""

    async def run(driven: Driven) -> None:
        found: list[object] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("tui.dialogs.settings.read_settings", lambda *_: asyncio.sleep(0, OF_ORDERS))
            window = SettingsDialog(offer)
            driven.app.push_screen(window, found.append)
            await driven.settled()
            assert "reading …" in driven.drawn
            await window.fill(None)  # type: ignore[arg-type]
            await driven.settled()
            await look(driven, window, found)

    shown(run, page="topics")


def test_settings_are_edited_in_their_table_and_altered_together() -> None:
    async def look(driven: Driven, window: SettingsDialog, found: list[object]) -> None:
        assert driven.drawn.index("retention.ms") < driven.drawn.index("compression.type"), "its own come first"
        assert "86400000 is 1d. How long records are kept." in driven.text
        await driven.press("ctrl+g")
        await driven.sees("nothing is edited")
        await driven.press("d")
        assert "604800000 is 7d. How long records are kept." in driven.text, "the text is about what it would be"
        await driven.press("down", "d")
        await driven.sees("compression.type is not set here")
        assert "dropped → 604800000" in driven.drawn
        dropped = next(item for item in window._model.shown if item.name == "retention.ms")
        assert window._value(replace(dropped, default="")).text == "dropped → empty"
        await driven.press("down", "enter")
        await driven.sees("log.dirs cannot be altered while the broker runs")
        await driven.press("down", "enter", *"2M", "enter")
        assert "1048588 → 2097152" in driven.drawn or "1048588 → 2000000" in driven.drawn, "units are taken"
        await driven.press("a", *"odd", "enter")
        await driven.sees("not KEY=VALUE")
        await driven.press(*"=1", "enter", "slash", *"retention")
        await driven.until(lambda: "max.message" not in driven.drawn)
        await driven.press("enter")
        assert "max.message" not in driven.drawn
        await driven.press("enter", *"5", "escape")
        assert "dropped → 604800000" in driven.drawn, "a value that was not taken changes nothing"
        await driven.press("ctrl+g")
        (operation,) = found
        assert isinstance(operation, AlterSettings)
        assert operation.deletions == ("retention.ms",)
        assert operation.additions.keys() == {"max.message.bytes", "odd"}
        assert window.again("refused").edits == {**operation.additions, "retention.ms": None}

    edited(look, EditSettings(ORDERS))


@staged(shown, page="topics")
async def test_the_key_of_a_screen_closes_a_result_and_shows_that_screen(driven: Driven, /) -> None:
    driven.app.push_screen(OutcomeDialog(Outcome("Delete topics", ("topic", "result")), COMMAND))
    await driven.sees("Delete topics: done")
    await driven.press("x")
    assert driven.app.screen is not driven.main
    await driven.press("2")
    await driven.until(lambda: driven.app.screen is driven.main and driven.main.location.page == "brokers")


def test_the_cursor_of_settings_begins_where_it_is_asked_for() -> None:
    async def look(driven: Driven, window: SettingsDialog, found: list[object]) -> None:
        await driven.until(lambda: "▌ max.message.bytes" in driven.drawn)

    edited(look, EditSettings(ORDERS, first="max.message.bytes"))


def test_settings_that_come_filled_stand_on_top_and_are_taken_as_they_are() -> None:
    edits: dict[str, str | None] = {"max.message.bytes": "1000", "compression.type": "gzip"}

    async def look(driven: Driven, window: SettingsDialog, found: list[object]) -> None:
        await driven.until(lambda: "→ 1000" in driven.drawn)
        assert {item.name for item in window._model.shown[:2]} == edits.keys()
        await driven.press("ctrl+g")
        await driven.until(lambda: bool(found))
        assert found == [AlterSettings.of(ORDERS, edits)]

    edited(look, EditSettings(ORDERS, edits, first="compression.type"))


def test_refused_settings_come_back_with_the_cursor_on_the_fault() -> None:
    async def look(driven: Driven, window: SettingsDialog, found: list[object]) -> None:
        await driven.sees("Invalid value x for configuration compression.type")
        assert "▌ compression.type" in driven.drawn
        assert "producer → x" in driven.drawn
        await driven.press("escape")
        assert found == [None]

    problem = "INVALID_CONFIG: Invalid value x for configuration compression.type"
    edited(look, EditSettings(ORDERS, {"compression.type": "x", "retention.ms": None}, problem))


@pytest.mark.parametrize(
    ("problem", "field"),
    [
        ("Topic 'abc' already exists", "name"),
        ("Replication factor: 9 larger than available brokers: 3", "factor"),
        ("partitions must be a whole number, not 'many'", "partitions"),
        ("Invalid value 5x for configuration retention.ms", "configs"),
        ("no answer within 30 s", None),
    ],
)
def test_a_refused_form_finds_the_field_at_fault(problem: str, field: str | None) -> None:
    values = {"name": "abc", "partitions": "many", "factor": "9", "configs": "retention.ms=5x cleanup.policy=compact"}
    labels = {"name": "Name", "partitions": "Partitions", "factor": "Replication factor", "configs": "Settings"}
    fields = tuple(FieldNeeded(name, labels[name], value) for name, value in values.items())
    at_fault = Ask("New topic", fields, lambda _: None, problem=problem).at_fault()
    assert (at_fault and at_fault.name) == field
