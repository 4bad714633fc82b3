"""Pictures of the dashboard on made-up clusters, for the guide and for tests to compare with; and screens as text.

    python -m tests.tui.dashboard_pictures

rewrites them all. A test fails while a picture differs from what the dashboard draws.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.paths import FOLDERS

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "pictures"
GOLDEN = ROOT / "fixtures" / "dashboard"


@dataclass(frozen=True)
class Picture:
    """One picture: a scene of ``fake_feed``, a screen, and the keys that lead to it."""

    folder: Path
    name: str
    scene: str
    page: str = "overview"
    size: tuple[int, int] = (120, 34)
    theme: str = "dark"
    ticks: int = 30
    then: Callable[[object], None] | None = None
    keys: tuple[str, ...] = ()
    shows: str = ""
    """The screen that the keys open, if it takes time to appear."""

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.svg"


def _kill_2(cluster: object) -> None:
    cluster.kill(2)  # type: ignore[attr-defined]


def _freeze_2(cluster: Any) -> None:
    cluster.silence(2)


def _throttle(cluster: Any) -> None:
    for topic in ("clicks", "orders"):
        cluster.set_topic_config(topic, "leader.replication.throttled.replicas", "*")
    for broker in range(1, 6):
        cluster.set_broker_config(broker, "leader.replication.throttled.rate", "1000000")


def _overload_3(cluster: Any) -> None:
    cluster.overload(3, idle_percent=12.0, throttle_ms=240.0)
    cluster.hide_figures(4, "it has no JMX port, and no other address of its metrics is known")


PICTURES = (
    Picture(GUIDE, "overview", "live", then=_kill_2),
    Picture(GUIDE, "brokers", "reassigning", "brokers", (120, 16)),
    Picture(GUIDE, "partitions", "live", "partitions", (120, 20), then=_kill_2),
    Picture(GUIDE, "groups", "live", "groups", (120, 17)),
    Picture(GUIDE, "spark", "streaming", "spark", (120, 17), ticks=3),
    Picture(GUIDE, "reassignments", "reassigning", "reassignments", (120, 16), ticks=14),
    Picture(GUIDE, "plan", "five", "brokers", (120, 36), ticks=4, keys=(*["down"] * 3, "R", "ctrl+g"), shows="Plans"),
    Picture(GUIDE, "disconnected", "disconnected", size=(120, 22), ticks=3),
    Picture(GUIDE, "clusters", "fleet", size=(120, 22), ticks=0),
    Picture(GUIDE, "help", "live", "topics", (120, 40), keys=("question_mark",)),
    Picture(GOLDEN, "overview-80x24-critical", "live", size=(80, 24), then=_kill_2),
    Picture(GOLDEN, "overview-200x60-light", "live", size=(200, 60), theme="light"),
    Picture(GOLDEN, "topics-80x24-contrast", "broker-down", "topics", (80, 24), "contrast", ticks=3),
    Picture(GOLDEN, "partitions-80x24-monochrome", "stale", "partitions", (80, 24), "monochrome", ticks=2),
    Picture(
        GOLDEN, "plan-80x24-light", "five", "brokers", (80, 24), "light", keys=("R", "ctrl+g"), ticks=4, shows="Plans"
    ),
    Picture(GOLDEN, "overview-80x24-denied", "denied", size=(80, 24), ticks=2),
)

FLEET = {
    "prod_eu": "live", "prod_us": "broker-down", "staging": "denied", "lab": "unreachable", "dev": "five",
    "old": "/etc/klamm/old.properties: no such file",
}  # fmt: skip
"""Clusters by name, with what they are."""


async def drawn(picture: Picture) -> str:
    """Return the picture as the dashboard draws it now."""
    from dashboards import dashboard

    from engine.admin.cluster.target import ClusterTarget, Origin

    if picture.scene == "fleet":
        return await _fleet_drawn(picture)
    target = ClusterTarget(f"made-up cluster ({picture.scene})", Origin.OPTIONS, bootstrap=(("made-up", 1),))
    async with dashboard(picture.scene, size=picture.size, page=picture.page, theme=picture.theme) as driven:
        if picture.then is not None:
            await driven.tick(picture.ticks - 4)
            picture.then(driven.feed.cluster)
        await driven.tick(picture.ticks if picture.then is None else 4)
        if picture.shows:
            # Nobody answers for the cluster: a plan is made from the frame, as for a recording.
            await driven.press(*picture.keys)
            await driven.sees(f"› {picture.shows}")
            driven.app.session.target = target
        else:
            driven.app.session.target = target
            await driven.press(*picture.keys)
        driven.main.draw(is_new_data=False)
        await driven.pilot.pause()
        return plain_svg(driven.app.export_screenshot(title="klamm top"))


async def _fleet_drawn(picture: Picture) -> str:
    from dashboards import dashboard, fleet_of

    from engine.admin.cluster.profiles import Colour

    fleet = fleet_of(
        FLEET, prod_eu={"label": "EU", "colour": Colour.RED}, prod_us={"label": "US", "colour": Colour.RED}
    )
    async with dashboard(fleet, fleet=fleet, size=picture.size) as driven:
        await driven.until(lambda: fleet.is_settled and len(driven.main.model.shown) == len(FLEET))
        await driven.sees("1 critical")
        return plain_svg(driven.app.export_screenshot(title="klamm top"))


SCREENS: dict[str, tuple[str, Callable[[object], None] | None, str]] = {
    "healthy": ("five", None, "overview sml, groups m, plans m"),
    "broker down": ("live", _kill_2, "overview sml, brokers sml, topics sm, partitions sm, groups sml, timeline m"),
    "broker frozen": ("live", _freeze_2, "overview m, brokers s"),
    "broker at its limit": ("five", _overload_3, "brokers sm, topics m"),
    "throttled move": ("reassigning", _throttle, "overview sm, reassignments sml"),
    "disconnected": ("disconnected", None, "overview sm"),
    "empty cluster": ("empty", None, "overview m, topics s"),
    "streaming": ("streaming", None, "spark m"),
}
"""The screens that matter by state: a scene of ``fake_feed``, what happens then, and screens with their sizes."""
SIZES = {"s": (80, 24), "m": (120, 40), "l": (200, 60)}
SCREENS_FILE = GOLDEN / "screens.txt"


async def screens_of(state: str) -> dict[str, str]:
    """Return the screens of a state by name, each as its text, where each line is followed by its tones."""
    from dashboards import dashboard

    from tui.state.location import Location

    scene, then, wanted = SCREENS[state]
    screens = {}
    async with dashboard(scene) as driven:
        await driven.tick(8)
        if then is not None:
            then(driven.feed.cluster)
            await driven.tick(4)
        for page, sizes in (picture.split() for picture in wanted.split(", ")):
            driven.main.go_to(Location(page))
            for size in sizes:
                width, height = SIZES[size]
                await driven.pilot.resize_terminal(width, height)
                driven.main.draw(is_new_data=False)
                await driven.settled()
                screens[f"{state}, {page} {width}x{height}"] = _as_text(driven)
    return screens


def _as_text(driven: Any) -> str:
    """Return what is drawn: after each line, where which tones begin, as ``12b`` for bad and ``20B`` for bold."""
    palette = driven.app.session.palettes[driven.app.theme]
    names = {getattr(palette, name): name[0] for name in ("quiet", "accent", "good", "warn", "bad")}
    names |= {palette.background: "x", palette.text: "t"}
    behind = {palette.selected: "_", palette.bad: "!", palette.warn: "!", palette.changed: "~"}
    lines = []
    for strip in driven.app.screen._compositor.render_strips()[: driven.app.size.height]:
        at, text, tones, last = 0, "", [], "t"
        for segment in strip:
            style = segment.style
            tone = names.get(style.color.triplet.hex, "f") if style is not None and style.color else "t"
            tone = tone.upper() if style is not None and style.bold else tone
            tone += behind.get(style.bgcolor.triplet.hex, "") if style is not None and style.bgcolor else ""
            if tone != last and segment.text.strip():
                tones.append(f"{at}{tone}")
                last = tone
            text, at = text + segment.text, at + len(segment.text)
        lines += [f"|{text.rstrip()}", *([f" {' '.join(tones)}"] if tones else [])]
    return "\n".join(lines)


def kept_screens() -> dict[str, str]:
    """Return the screens as they were when somebody looked at them."""
    parts = SCREENS_FILE.read_text("utf-8").split("=== ")[1:]
    return {name: text.strip("\n") for name, _, text in (part.partition("\n") for part in parts)}


def plain_svg(svg: str) -> str:
    """Return the picture without details that differ from run to run, and without the reference to an external font."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"terminal-\d+", "terminal", svg)


async def _write_all() -> None:
    for picture in PICTURES:
        picture.folder.mkdir(parents=True, exist_ok=True)
        picture.path.write_text(await drawn(picture), encoding="utf-8")
    pictures = [item for state in SCREENS for item in (await screens_of(state)).items()]
    SCREENS_FILE.write_text("".join(f"=== {name}\n{text}\n" for name, text in pictures), encoding="utf-8")


if __name__ == "__main__":
    sys.path[:0] = FOLDERS
    asyncio.run(_write_all())
