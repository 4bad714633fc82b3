"""What keys need later is loaded and hidden from the collector once the first picture is drawn: no key waits for it."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dashboards import dashboard, drive
from event_loop import in_event_loop
from fake_cluster import small_cluster
from fake_feed import FakeFeed

from engine.admin.cluster.target import Side
from engine.admin.watch.frame import LinkState
from tests.support.paths import FOLDERS
from tui.app import MODULES, Dashboard

ROOT = Path(__file__).parents[2]
NEVER_IN_A_HURRY = {
    "difflib": "a command or a key file with a mistake",
    "engine.admin.cluster.target": "loaded already",
    "engine.admin.watch.replay_feed": "before the dashboard opens",
    "engine.local.jmx": "before the dashboard opens",
    "plans.errors": "loaded with the plans",
    "tui.planning.opened_plan": "in a thread",
}
"""What functions import besides, and why no key waits for it."""

KEYS = """
from dashboards import dashboard, drive
import sys

async def run():
    async with dashboard("live") as driven:
        assert "tui.planning.desk" not in sys.modules, "the first picture does without it"
        await driven.until(lambda: driven.app._loading is not None and driven.app._loading.done())
        before = set(sys.modules)
        for key in "7123456890l":
            await driven.press(key)
        for keys in "3N 3D 3A 3V 3G 1E 2A 2B 4U 4M 4X 5O 5X 6H 6C 7N 7o".split():
            await driven.press(*keys, "escape", "escape")
        print(*sorted(name for name in sys.modules.keys() - before if not name.startswith("textual.")))

drive(run)
"""


def test_no_key_loads_a_module_once_the_first_picture_was_there_for_a_while() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *FOLDERS))}
    done = subprocess.run(
        [sys.executable, "-c", KEYS], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_whatever_functions_import_is_loaded_beforehand() -> None:
    needed = {
        node.module
        for path in (ROOT / "tui").rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and node.module
    }
    named = {"tui.pages.plans" if name == "tui.pages" else name for name in needed}
    assert named == {*MODULES} | NEVER_IN_A_HURRY.keys()


@in_event_loop
async def test_full_collections_wait_until_the_first_picture_of_the_cluster_and_come_again_after_it() -> None:
    usual = gc.get_threshold()
    cluster = small_cluster()
    cluster.forget_reads()
    for side in Side:
        cluster.set_link(side, LinkState.CONNECTING)
    async with dashboard(FakeFeed(cluster, plays=False)) as driven:
        assert not driven.app.board.has_metadata
        assert gc.get_threshold() == (*usual[:2], 100 * usual[2])
        frozen = gc.get_freeze_count()
        for side in Side:
            cluster.set_link(side, LinkState.CONNECTED)
        await driven.tick()
        await driven.until(lambda: gc.get_threshold() == usual)
        assert gc.get_freeze_count() > frozen


def test_a_dashboard_that_never_saw_its_cluster_leaves_the_collector_as_it_was() -> None:
    usual = gc.get_threshold()

    async def run() -> None:
        async with dashboard("connecting"):
            assert gc.get_threshold() != usual

    drive(run)
    assert gc.get_threshold() == usual


def test_a_dashboard_that_ends_before_it_settles_leaves_nothing_that_was_never_awaited(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """A picture ends right after its first frame: the worker may come too late."""
    monkeypatch.setattr(Dashboard, "run_worker", lambda self, work, **options: None)

    async def run() -> None:
        async with dashboard("live") as driven:
            await driven.tick(2)

    drive(run)
    gc.collect()
    assert [str(warning.message) for warning in recwarn if "never awaited" in str(warning.message)] == []
