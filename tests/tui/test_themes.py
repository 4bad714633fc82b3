"""Themes: those that come with klamm, and those that a user writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dashboards import Driven, dashboard, drive
from fake_feed import fake_feed
from klamm_program import klamm
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from engine.admin.watch.recording import FrameWriter
from tui.themes import PALETTES, ColourlessFilter, custom_themes, theme_of

NORD = 'base = "light"\naccent = "#88c0d0"\n'


def test_a_theme_of_your_own_changes_what_it_names_and_keeps_the_rest(tmp_path: Path) -> None:
    (tmp_path / "nord.toml").write_text(NORD)
    (tmp_path / "notes.txt").write_text("no theme")
    themes, problems = custom_themes(tmp_path)
    assert (list(themes), problems) == (["nord"], {})
    nord, light = themes["nord"], PALETTES["light"]
    assert nord.accent == "#88c0d0"
    assert (nord.background, nord.bad, nord.is_dark) == (light.background, light.bad, False)
    assert custom_themes(tmp_path / "absent") == ({}, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('base = "pink"', "base must be one of dark, light, contrast, monochrome"),
        ('acent = "#88c0d0"', "unknown key 'acent': known are base, background, text"),
        ('accent = "no colour"', "no colour"),
        ("accent = 5", "5"),
        ("accent", "Expected"),
        ("\udcff", "utf-8"),
    ],
)
def test_a_theme_that_cannot_be_used_is_named_and_the_others_are_used(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    (tmp_path / "nord.toml").write_text(NORD)
    themes, problems = custom_themes(tmp_path)
    assert list(themes) == ["nord"]
    (problem,) = problems.values()
    assert problem.startswith(f"{tmp_path / 'bad.toml'}: ")
    assert expected in problem


def test_other_themes_are_one_key_away() -> None:
    async def look(driven: Driven) -> None:
        seen = [driven.app.theme]
        for _ in range(5):
            await driven.press("ctrl+t")
            seen.append(driven.app.theme)
            assert ("#123456" in driven.app.export_screenshot()) == (driven.app.theme == "nord")
        assert seen == ["dark", "light", "contrast", "monochrome", "nord", "dark"]

    async def run() -> None:
        palette = replace(PALETTES["light"], background="#123456")
        async with dashboard(palettes={**PALETTES, "nord": palette}, problems=("bad.toml: no theme",)) as driven:
            assert any("bad.toml: no theme" in note.message for note in driven.app._notifications)
            await look(driven)

    drive(run)


@pytest.mark.parametrize("page", ["overview", "brokers"])
def test_a_theme_that_differs_in_one_colour_is_drawn_at_once(page: str) -> None:
    async def run() -> None:
        palettes = {**PALETTES, "twin": replace(PALETTES["dark"], good="#123456")}
        async with dashboard(page=page, palettes=palettes) as driven:
            await driven.tick(2)
            driven.app.theme = "twin"
            await driven.settled()
            shown = driven.app.export_screenshot()
            assert "#123456" in shown and PALETTES["dark"].good not in shown

    drive(run)


@pytest.mark.parametrize("name", PALETTES)
def test_every_theme_shows_where_the_aside_begins(name: str) -> None:
    theme = theme_of(name, PALETTES[name])
    assert Color.parse(theme.variables["divider"]) != Color.parse(PALETTES[name].background)


def test_without_colour_attributes_tell_what_colours_told() -> None:
    palette = PALETTES["monochrome"]
    colourless = ColourlessFilter(palette)

    def attributes(text: str, behind: str, background: str = palette.background, **more: bool) -> set[str]:
        segment = Segment("x", Style(color=text, bgcolor=behind, **more))
        (style,) = colourless.apply([segment], Color.parse(background))
        assert style.style is not None and style.style.color is None and style.style.bgcolor is None
        return set(str(style.style).replace("not ", "not-").split()) - {"not-dim", "not-reverse", "not-underline"}

    assert attributes(palette.text, palette.background) in ({"none"}, set())
    assert attributes(palette.text, palette.selected, bold=True) == {"reverse", "bold"}
    assert attributes(palette.quiet, palette.selected) == {"reverse"}, "the row under the cursor"
    assert attributes(palette.text, palette.changed) == {"underline"}
    assert attributes(palette.quiet, palette.background) == {"dim"}
    assert attributes(palette.text, palette.selected, background=palette.selected) == {"underline"}, "a field"
    assert attributes(palette.background, palette.text, background=palette.selected) == {"reverse"}, "its cursor"


def test_a_theme_of_your_own_is_chosen_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "klamm" / "themes"
    folder.mkdir(parents=True)
    (folder / "nord.toml").write_text(NORD)
    recording = tmp_path / "made-up.rec"
    writer = FrameWriter(recording, "made-up")
    feed = fake_feed("live", plays=False)
    for _ in range(3):
        # A picture of one frame would wait until its time limit for data that the frame does not have yet.
        writer.write(feed.tick())
    writer.close()
    drawn = ("top", "--replay", recording, "--screenshot")
    ran = klamm(*drawn, "nord.svg", "--theme", "nord", folder=tmp_path)
    assert ran.code == 0, ran.err
    assert "#88c0d0" in (tmp_path / "nord.svg").read_text("utf-8")
    (folder / "nord.toml").write_text('accent = "no colour"')
    ran = klamm(*drawn, "other.svg", "--theme", "nord", folder=tmp_path)
    assert ran.code == 2
    assert "nord.toml" in ran.err, "the reason is told, not only that there is no such theme"
