"""Dashboards on made-up clusters, driven by keys, for tests of the widgets and flows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fake_feed import SCENES, FakeFeed, fake_feed
from patience import within
from textual import events
from textual._compositor import Compositor
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.keys import _character_to_key, key_to_character
from textual.pilot import Pilot

from engine.admin.cluster.profiles import Profile
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.watch.feed import Feed
from tui.app import Dashboard
from tui.screen.main_screen import MainScreen
from tui.state.fleet import Fleet, Member
from tui.state.session import Session
from tui.widgets.lines_view import LinesView

WIDE = (120, 40)
WAIT_S = 60.0
TYPED_MAX = 40
QUIET_ROUNDS = 2
"""A message may ask for a callback after the next drawing, which may send another message."""


_parse_rules = Stylesheet._parse_rules
_parsed: dict[object, list[RuleSet]] = {}


def _parse_rules_once(self: Stylesheet, *given: Any, **named: Any) -> list[RuleSet]:
    """Parse each style sheet once for all dashboards: it would take a fifth of each start."""
    key = (given, *named.items(), *self._variables.items())
    if key not in _parsed:
        _parsed[key] = _parse_rules(self, *given, **named)
    return _parsed[key]


Stylesheet._parse_rules = _parse_rules_once  # type: ignore[method-assign]

_render_update = Compositor.render_update
_is_drawn_later = False


def _render_update_later(self: Compositor, full: bool = False, **named: Any) -> Any:
    """Leave the drawing to ``Driven.settled``: on the way to one picture, half the CPU of a key draws others.

    Who wants all of the screen, such as an export, gets it at once.
    """
    return None if _is_drawn_later and not full else _render_update(self, full, **named)


Compositor.render_update = _render_update_later  # type: ignore[method-assign]


class Driven:
    """One running dashboard: what a person sees and presses."""

    def __init__(self, app: Dashboard, pilot: Pilot[int | None], feed: Any) -> None:
        self.app = app
        self.pilot = pilot
        self.feed = feed

    @property
    def main(self) -> MainScreen:
        main = self.app.main
        assert main is not None
        return main

    async def press(self, *keys: str) -> None:
        """Press keys, each once everything that the previous key started is handled.

        The pilot's own ``press`` waits by the clock until the process has been idle for a while. A test would spend
        most of its time there, and more on a busy machine.
        """
        for key in keys:
            self.app.post_message(events.Key(key, key_to_character(key)))
            await self.settled()

    async def type(self, text: str) -> None:
        """Type a text; a very long one is partly pasted."""
        for character in text[:TYPED_MAX]:
            self.app.post_message(events.Key(_character_to_key(character), character))
            await self.settled()
        if rest := text[TYPED_MAX:]:
            self.app.post_message(events.Paste(rest))
            await self.settled()

    async def settled(self) -> None:
        """Wait until all messages and their follow-ups are handled, and the changes are drawn."""
        rounds, is_in_time = 0, within(WAIT_S)
        while rounds < QUIET_ROUNDS:
            self._goes_on(is_in_time)
            await self.pilot.pause(0)
            nodes = [node for screen in self.app.screen_stack for node in screen.walk_children(with_self=True)]
            rounds = 0 if any(node.message_queue_size for node in (self.app, *nodes)) else rounds + 1
        if _is_drawn_later:
            _render_update(self.app.screen._compositor, screen_stack=self.app._background_screens)

    async def tick(self, count: int = 1) -> None:
        """Send frames, each once the previous one was taken, and wait until the last one is drawn."""
        for _ in range(count):
            at = self.feed.tick().sequence
            await self._comes_true(lambda at=at: self.app.newest and self.app.newest.sequence >= at, pause_s=0.0)
        await self.settled()

    async def until(self, is_so: Callable[..., bool]) -> None:
        """Wait for a condition, with a deadline."""
        await self._comes_true(is_so, pause_s=0.01)
        await self.settled()

    async def _comes_true(self, is_so: Callable[..., object], *, pause_s: float) -> None:
        is_in_time, began = within(WAIT_S), time.monotonic()
        while not is_so():
            self._goes_on(is_in_time)
            # To read the screen takes milliseconds: who waits for a cluster looks less and less often.
            await asyncio.sleep(min(pause_s + 0.05 * (time.monotonic() - began), 0.1))

    def _goes_on(self, is_in_time: Callable[[], bool]) -> None:
        """Raise what the dashboard has crashed with: its widgets handle no more messages."""
        if (crash := self.app._exception) is not None:
            raise crash
        assert is_in_time(), f"not within {WAIT_S} s; the screen:\n{self.text}"

    async def sees(self, text: str) -> None:
        """Wait until a text is on the screen."""
        await self.until(lambda: text in self.text)

    @property
    def text(self) -> str:
        """The text of the screen in front."""
        screen = self.app.screen
        if isinstance(screen, MainScreen):
            return self.drawn
        return "\n".join(view.text for view in screen.query(LinesView))

    @property
    def drawn(self) -> str:
        """The visible part of the screen in front: what does not fit into a window is missing."""
        strips = self.app.screen._compositor.render_strips()[: self.app.size.height]
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    def lines_with(self, text: str) -> list[str]:
        """Return the lines of the screen that hold a text."""
        return [line for line in self.text.splitlines() if text in line]


@asynccontextmanager
async def dashboard(
    scene: str | Feed = "live", *, size: tuple[int, int] = WIDE, page: str = "overview", **options: Any
) -> AsyncIterator[Driven]:
    """Yield a dashboard on a scene of ``fake_feed``, which stands still until it gets a tick."""
    global _is_drawn_later
    feed = fake_feed(scene, plays=False) if isinstance(scene, str) else scene
    app = Dashboard(Session(feed, page=page, clock=lambda: 0.0, **options))
    _is_drawn_later = True
    try:
        async with app.run_test(size=size) as pilot:
            driven = Driven(app, pilot, feed)
            await driven.until(lambda: app.main is not None and app.board.frame is not None)
            yield driven
    finally:
        _is_drawn_later = False


def fleet_of(
    scenes: Mapping[str, str], *, open_feed: Callable[[ClusterTarget], Feed] | None = None, **profiles: Any
) -> Fleet:
    """Return clusters by name, each as a scene of ``fake_feed`` has it; ``profiles`` says more about some.

    A scene that is no scene is why the profile cannot be used.
    """

    def feed_of(target: ClusterTarget) -> Feed:
        return FakeFeed(SCENES[scenes[target.name]](), plays=False, name=target.name)

    def member(name: str, scene: str) -> Member:
        profile = Profile(name, bootstrap_servers=f"{name}-kafka1:9092", **profiles.get(name, {}))
        target = ClusterTarget(name, Origin.PROFILE, bootstrap=((f"{name}-kafka1", 9092),))
        return Member(profile, target) if scene in SCENES else Member(profile, None, scene)

    members = [member(name, scene) for name, scene in scenes.items()]

    def now_ms() -> int:
        """The time of the newest frame: made-up clusters have a time of their own."""
        return max((member.board.frame.at_ms for member in members if member.board.frame is not None), default=0)

    return Fleet(members, open_feed or feed_of, now_ms)


def drive(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine."""
    asyncio.run(test())


def shown(look: Callable[[Driven], Awaitable[None]], scene: str | FakeFeed = "live", **options: Any) -> None:
    """Look at a dashboard of a scene."""

    async def run() -> None:
        async with dashboard(scene, **options) as driven:
            await look(driven)

    drive(run)


async def make_move(driven: Driven, topic: str, brokers: str) -> None:
    """Make a plan that moves a topic."""
    await driven.press("N")
    await driven.sees("Make a plan")
    await driven.press("7")
    await driven.sees("Plan: move topics to a list of brokers")
    await driven.type(brokers)
    await driven.press("down", "down")
    await driven.type(topic)
    await driven.press("ctrl+g")
    await driven.until(lambda: driven.main.off_board.plan is not None and driven.app.screen is driven.main)


async def apply_until_it_moves(driven: Driven, throttle: str, waves: str = "2 waves") -> None:
    """Apply a plan, and wait until its first wave is under way. A plan that was saved keeps its name."""
    await driven.press("A")
    await driven.sees("Throttle")
    if "Saved as" in driven.text:
        await driven.press("down")
    await driven.type(throttle)
    await driven.press("ctrl+g")
    await driven.sees(f"in {waves}, at")
    await driven.press("y")
    await driven.until(lambda: driven.main.off_board.run is not None and driven.main.off_board.run.progress is not None)
