"""Opens the dashboard for a command: in the terminal, or without one for a single picture."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.profiles import Profiles, load_profiles, profiles_path, user_folder
from engine.admin.cluster.target import ClusterTarget, Naming, resolve_target
from engine.admin.watch.feed import Feed
from engine.admin.watch.live_feed import LiveFeed
from engine.admin.watch.recording import Recorded, RecordedFeed, record
from tui.actions import OF_THE_PROBLEM, PAGES, Registry, key_label, key_name
from tui.app import Dashboard, has_utf8
from tui.operations.operation import EXPECTED, failure_text
from tui.state.fleet import Fleet, Member
from tui.state.log_ring import log_file_path, logs_kept
from tui.state.session import Session
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
    return problems.get(name) or f"--theme must be one of {', '.join([*PALETTES, *custom])}, not {name!r}"


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
    return asyncio.run(_record(_opened(target, wishes), wishes.record))


def _opened(target: ClusterTarget, wishes: Wishes) -> LiveFeed:
    """Return the feed of one cluster, with the metrics of its brokers."""
    from engine.local.jmx import read_jmx

    return LiveFeed(target, interval_s=wishes.refresh_s, read_jmx=read_jmx)


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
        return _opened(target, wishes)

    def open_member(target: ClusterTarget) -> Feed:
        # The table of all clusters shows no rates: reading them would cost as much as all the rest.
        return LiveFeed(target, interval_s=wishes.refresh_s, has_ends=False)

    with logs_kept(None if wishes.screenshot is not None else log_file_path(environment)) as log:
        fleet = None
        if feed is None and target is None:
            feed = fleet = Fleet(members_of(profiles, wishes, jaas_config, environment), open_member)
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
            problems=(*key_problems, *theme_problems.values(), *profile_problems),
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


# ``keys.toml``: other keys for actions. Each mistake is reported with its line; a file with mistakes changes nothing.
#
# [keys]
# "rows.filter" = "f"
# "topic.delete" = ["D", "ctrl+d"]

_KEY = re.compile(r"(ctrl\+|shift\+|alt\+)*([a-z]+[a-z_0-9]*|[A-Z]|[0-9])")
_TAKEN = frozenset({"up", "down", "home", "end", "pageup", "pagedown", "tab", "shift+tab", "ctrl+c"})


def key_file_path(environment: Mapping[str, str]) -> Path:
    """Return where ``keys.toml`` is looked for, whether it exists or not."""
    return user_folder(environment, "XDG_CONFIG_HOME", ".config") / "keys.toml"


def load_keys(path: Path, registry: Registry) -> tuple[Registry, list[str]]:
    """Return the registry with the file's keys, and what is wrong; with a problem, the registry as it was."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except FileNotFoundError:
        return registry, []
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"at line (\d+)", str(error))
        return registry, [f"{path}:{match[1] if match else 1}: not TOML: {error}"]
    except (OSError, UnicodeDecodeError) as error:
        return registry, [f"{path}:1: cannot be read: {error}"]
    problems, bound = _checked(text.splitlines(), document, registry)
    rebound = registry if problems else registry.rebound(bound)
    return rebound, [f"{path}:{line}: {message}" for line, message in problems]


_Problem = tuple[int, str]
"""A line, and what is wrong there."""


def _checked(
    lines: list[str], document: dict[str, Any], registry: Registry
) -> tuple[list[_Problem], dict[str, tuple[str, ...]]]:
    """Return what is wrong, and the keys of each action that the file names."""
    entries = document.pop("keys", {})
    if not isinstance(entries, dict):
        return [(_line_with(lines, "keys"), "keys must be a table: [keys]")], {}
    problems = [(_line_with(lines, name), f"unknown table {name!r}: keys stand under [keys]") for name in document]
    known = {action.id for action in registry.actions}
    bound: dict[str, tuple[str, ...]] = {}
    for name, value in _flat(entries):
        line = _line_with(lines, name)
        keys = _keys_of(value)
        if name not in known:
            problems.append((line, f"no action is called {name!r}{_alike(name, known)}"))
        elif keys is None:
            problems.append((line, f"{name}: write a key, or a list of keys"))
        else:
            problems += [(line, f"{name}: {why}") for key in keys if (why := _refusal(key))]
            bound[name] = keys
    return [*problems, *_conflicts(lines, registry.rebound(bound), bound)], bound


def _flat(entries: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return names with their values; an unquoted ``rows.filter`` is a table in TOML."""
    settings: list[tuple[str, Any]] = []
    for name, value in entries.items():
        settings += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return settings


def _keys_of(value: object) -> tuple[str, ...] | None:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        return None
    return tuple(key_name(text) for text in texts)


def _refusal(key: str) -> str | None:
    if not _KEY.fullmatch(key):
        return f"not a key: {key!r}"
    if key in _TAKEN:
        return f"{key} is taken: it moves the cursor or ends the program"
    return None


def _conflicts(lines: list[str], registry: Registry, bound: Mapping[str, tuple[str, ...]]) -> list[_Problem]:
    """Return a problem for each key of the file that another action has on the same screen."""
    problems, reported = [], set()
    for page, _, _ in PAGES:
        owners: dict[str, str] = {}
        for action in registry.on_page(page):
            for key in action.keys:
                other = owners.setdefault(key, action.id)
                both = {other, action.id}
                if (
                    len(both) == 1
                    or both == OF_THE_PROBLEM
                    or both.isdisjoint(bound)
                    or (key, frozenset(both)) in reported
                ):
                    continue
                reported.add((key, frozenset(both)))
                mine = action.id if action.id in bound else other
                theirs = other if mine == action.id else action.id
                problems.append((_line_with(lines, mine), f"{key_label(key)} is the key of {theirs} too"))
    return problems


def _alike(name: str, known: set[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    return f": did you mean {close[0]!r}?" if close else ""


def _line_with(lines: list[str], name: str) -> int:
    """Return the first line that names it; where it is a table's part, the line with its last word."""
    for wanted in (name, name.rpartition(".")[2]):
        for number, line in enumerate(lines, 1):
            if wanted in line.partition("#")[0]:
                return number
    return 1
