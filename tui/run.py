"""Opens the dashboard for a command: in the terminal, or without one for a single picture."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.profiles import Profiles, load_profiles, profiles_path
from engine.admin.cluster.target import ClusterTarget, Naming, resolve_target
from engine.admin.watch.feed import Feed
from engine.admin.watch.live_feed import LiveFeed
from engine.admin.watch.recording import Recorded, record
from tui.actions import Registry
from tui.app import Dashboard, has_utf8
from tui.key_file import key_file_path, load_keys
from tui.log_ring import log_file_path, logs_kept
from tui.operations.operation import EXPECTED, failure_text
from tui.recorded_feed import RecordedFeed
from tui.session import Session
from tui.state.fleet import Fleet, Member
from tui.terminal import INTERRUPTED, TERMINATED
from tui.themes import PALETTES, custom_themes

PICTURE_SIZE = (120, 40)
"""The size of a picture without a terminal, in characters, unless COLUMNS and LINES say otherwise."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How the dashboard should start."""

    page: str = "overview"
    refresh_s: float = 1.0
    theme: str | None = None
    is_read_only: bool = False
    screenshot: Path | None = None
    record: Path | None = None
    timeout_s: float = 30.0


def theme_refusal(name: str, environment: Mapping[str, str]) -> str:
    """Return why a theme cannot be chosen, or an empty text."""
    custom, problems = custom_themes(_themes_folder(environment))
    if name in PALETTES or name in custom:
        return ""
    broken = [str(problem) for problem in problems if problem.path.stem == name]
    return broken[0] if broken else f"--theme must be one of {', '.join([*PALETTES, *custom])}, not {name!r}"


def run_replay(recording: Path, wishes: Wishes) -> int:
    """Show a recording until the user quits; return the exit code.

    Raises:
        NotFound, BadRequest: there is no such file, or it is not a recording.
    """
    from engine.admin.watch.replay_feed import ReplayFeed

    return run_dashboard(None, wishes, ReplayFeed(recording))


def record_headless(target: ClusterTarget, wishes: Wishes) -> tuple[Recorded | None, int]:
    """Record without a terminal until a signal ends it; return a summary and the exit code.

    Raises:
        BadRequest: the file exists already, or cannot be created.
    """
    assert wishes.record is not None
    return asyncio.run(_record(LiveFeed(target, interval_s=wishes.refresh_s), wishes.record))


async def _record(feed: Feed, path: Path) -> tuple[Recorded | None, int]:
    codes: list[int] = []
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Task[None]] = []

    def end(code: int) -> None:
        if not codes:
            codes.append(code)
            # The feed ends its frames, so that the recording is complete.
            closing.append(loop.create_task(feed.close(), name="end-recording"))

    for number, code in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)):
        loop.add_signal_handler(number, end, code)
    recorded = await record(feed, path)
    await asyncio.gather(*closing)
    return recorded, codes[0] if codes else 0


def run_dashboard(
    target: ClusterTarget | None, wishes: Wishes, feed: Feed | None = None, *, jaas_config: str | None = None
) -> int:
    """Show the dashboard until the user quits; return the exit code.

    Args:
        target: the cluster; None for a recording, whose feed is given, and for all clusters of the profiles.
        jaas_config: the JAAS file for those.
    """
    environment = os.environ
    registry, key_problems = load_keys(key_file_path(environment), Registry())
    palettes, theme_problems = custom_themes(_themes_folder(environment))
    # Textual would still send greys, and take an empty value for a wish.
    is_colourless = bool(os.environ.pop("NO_COLOR", ""))
    profiles, profile_problems = _profiles(environment)

    def open_feed(target: ClusterTarget) -> Feed:
        return LiveFeed(target, interval_s=wishes.refresh_s)

    with logs_kept(None if wishes.screenshot is not None else log_file_path(environment)) as log:
        fleet = None
        if feed is None and target is None:
            feed = fleet = Fleet(members_of(profiles, wishes, jaas_config, environment), open_feed)
        elif feed is None:
            assert target is not None
            feed = open_feed(target)
            if wishes.record is not None:
                feed = RecordedFeed(feed, wishes.record)
        session = Session(
            feed,
            target,
            open_feed=None if target is None and fleet is None else open_feed,
            fleet=fleet,
            is_read_only=wishes.is_read_only,
            page=wishes.page,
            registry=registry,
            palettes={"monochrome": PALETTES["monochrome"]} if is_colourless else {**PALETTES, **palettes},
            theme="monochrome" if is_colourless else wishes.theme or "dark",
            profiles=profiles,
            problems=tuple(map(str, (*key_problems, *theme_problems, *profile_problems))),
            log=log,
            screenshot=wishes.screenshot,
            timeout_s=wishes.timeout_s,
            environment=environment,
        )
        return _run(session, is_colourless=is_colourless)


def members_of(
    profiles: Profiles | None, wishes: Wishes, jaas_config: str | None, environment: Mapping[str, str]
) -> list[Member]:
    """Return the clusters of the profiles; one whose profile cannot be used says why."""
    members = []
    for profile in () if profiles is None else profiles.profiles:
        naming = Naming(cluster=profile.name, jaas_config=jaas_config, may_jaas_idle=True)
        try:
            target = resolve_target(naming, environment, Path.cwd())
        except EXPECTED as error:
            members.append(Member(profile, None, failure_text(error)))
        else:
            is_read_only = target.is_read_only or wishes.is_read_only
            members.append(Member(profile, replace(target, is_read_only=is_read_only)))
    return members


def _run(session: Session, *, is_colourless: bool) -> int:
    if session.screenshot is not None:
        return asyncio.run(_draw_once(session))
    is_plain_text = not has_utf8(sys.__stdout__.encoding if sys.__stdout__ else None)
    app = Dashboard(session, is_plain_text=is_plain_text, is_colourless=is_colourless)
    code = app.run(mouse=True)
    if app.left_behind:
        print(app.left_behind, file=sys.stderr)
    return app.return_code or 1 if code is None else code


async def _draw_once(session: Session) -> int:
    """Draw until everything was read once, or the time is over: then the picture shows what is known."""
    app = Dashboard(session)
    columns, lines = os.environ.get("COLUMNS", ""), os.environ.get("LINES", "")
    size = (
        int(columns) if columns.isdecimal() and int(columns) else PICTURE_SIZE[0],
        int(lines) if lines.isdecimal() and int(lines) else PICTURE_SIZE[1],
    )
    running = asyncio.create_task(app.run_async(headless=True, size=size), name="dashboard-picture")
    done, _ = await asyncio.wait({running}, timeout=session.timeout_s)
    if not done:
        app.finish_screenshot(code=0 if app.has_answer else 3)
    return await running or 0


def _profiles(environment: Mapping[str, str]) -> tuple[Profiles | None, list[str]]:
    try:
        return load_profiles(profiles_path(environment)), []
    except AdminError as error:
        return None, [str(error)]


def _themes_folder(environment: Mapping[str, str]) -> Path:
    return key_file_path(environment).parent / "themes"
