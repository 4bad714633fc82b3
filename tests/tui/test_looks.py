"""The dashboard looks like its pictures: those of the guide, and a few more sizes, states and themes."""

from __future__ import annotations

import asyncio
import re

import pytest
from dashboard_pictures import GUIDE, PICTURES, ROOT, SCREENS, Picture, drawn, kept_screens, screens_of

from tui.actions import ACTIONS


def words_of(svg: str) -> list[str]:
    """Return the texts of a picture, so that a difference can be read."""
    return re.findall(r">([^<>]+)</text>", svg.replace("&#160;", " "))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_what_the_dashboard_draws(picture: Picture) -> None:
    kept, now = picture.path.read_text("utf-8"), asyncio.run(drawn(picture))
    hint = "look at it, then: python -m tests.tui.dashboard_pictures"
    assert words_of(now) == words_of(kept), hint
    assert now == kept, f"the same words in other places or colours; {hint}"


@pytest.mark.parametrize("state", SCREENS)
def test_a_screen_is_as_it_was_when_somebody_looked_at_it(state: str) -> None:
    kept = {name: text for name, text in kept_screens().items() if name.startswith(f"{state},")}
    hint = "look at it, then: python -m tests.tui.dashboard_pictures"
    assert asyncio.run(screens_of(state)) == kept, hint


def test_every_picture_of_the_guide_is_shown_there() -> None:
    guide = (ROOT / "docs" / "guides" / "the-dashboard.md").read_text("utf-8")
    assert set(re.findall(r"pictures/([\w-]+)\.svg", guide)) == {
        picture.name for picture in PICTURES if picture.folder == GUIDE
    }


def test_the_guide_lists_every_key() -> None:
    guide = (ROOT / "docs" / "guides" / "the-dashboard.md").read_text("utf-8").partition("## All keys")[2]
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in guide.splitlines() if line[2:3] == "`"]
    keys_told = [(keys.replace("`", ""), name.strip("`"), where, text) for keys, name, where, text in rows]
    assert keys_told == [
        (action.key_text, action.id, ", ".join(sorted(action.pages)) or "everywhere", action.help) for action in ACTIONS
    ]
