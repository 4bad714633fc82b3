"""Where a copied text goes, and the message about it."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from dashboards import dashboard, drive
from event_loop import in_event_loop

from engine.admin.cluster.profiles import Colour
from engine.admin.cluster.target import ClusterTarget, Origin
from tui import terminal
from tui.drawing.cells import Tone
from tui.drawing.lines import Line
from tui.pages.clusters import cluster_mark, cluster_tone
from tui.screen.page_screen import title_line
from tui.screen.saving import TERMINAL_BYTES_MAX, copied_text, copy_natively, native_command
from tui.terminal import Output


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of programs that save their input, and one that fails."""
    for name, script in (("wl-copy", f"cat > {tmp_path}/kept"), ("xclip", "exit 3"), ("xsel", "sleep 60")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return tmp_path


def test_which_program_there_is_for_this_session(programs: Path) -> None:
    path = str(programs)
    assert native_command({"PATH": path, "WAYLAND_DISPLAY": "w", "DISPLAY": ":0"}, "linux") == ["wl-copy"]
    assert native_command({"PATH": path, "DISPLAY": ":0"}, "linux") == ["xclip", "-selection", "clipboard"]
    assert native_command({"PATH": path}, "linux") is None, "no display, no clipboard"
    assert native_command({"PATH": "/absent", "DISPLAY": ":0"}, "linux") is None
    (programs / "pbcopy").write_text("")
    (programs / "pbcopy").chmod(0o755)
    assert native_command({"PATH": path}, "darwin") == ["pbcopy"]
    assert native_command({"PATH": path, "SSH_CONNECTION": "1"}, "darwin") is None, "nobody pastes from there"


def test_the_program_takes_the_text_or_says_why_not(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}
    monkeypatch.setenv("PATH", environment["PATH"])
    monkeypatch.setattr("tui.screen.saving.NATIVE_LIMIT_S", 0.3)
    assert asyncio.run(copy_natively("größer ✓", ["wl-copy"], environment)) == ""
    assert (programs / "kept").read_text("utf-8") == "größer ✓"
    assert "ended with 3" in asyncio.run(copy_natively("x", ["xclip"], environment))
    assert "did not end" in asyncio.run(copy_natively("x", ["xsel"], environment))
    assert "absent-program" in asyncio.run(copy_natively("x", ["absent-program"], environment))


@in_event_loop
async def test_a_program_that_hangs_is_ended_when_nobody_waits_for_it_any_more(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}
    monkeypatch.setenv("PATH", environment["PATH"])
    begun: list[asyncio.subprocess.Process] = []
    original = asyncio.create_subprocess_exec

    async def watched(*words: str, **options: Any) -> asyncio.subprocess.Process:
        begun.append(await original(*words, **options))
        return begun[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    copying = asyncio.create_task(copy_natively("x", ["xsel"], environment))
    async with asyncio.timeout(20):
        while not begun:
            await asyncio.sleep(0.01)
    copying.cancel()
    await asyncio.wait({copying}, timeout=20)
    assert begun[0].returncode is not None


def test_what_is_said() -> None:
    assert copied_text("xclip", "", 10) == "copied by xclip, and by the terminal (OSC 52)"
    assert copied_text("", "", 10) == "copied by the terminal (OSC 52): if it takes that"
    assert "xclip ended with 3" in copied_text("", "xclip ended with 3", 10)
    assert "^s writes a file" in copied_text("", "", TERMINAL_BYTES_MAX + 1)


def test_a_copy_goes_both_ways_and_says_so(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "WAYLAND_DISPLAY": "w"}
    monkeypatch.setenv("PATH", environment["PATH"])
    written: list[str] = []

    async def run() -> None:
        async with dashboard("live", page="topics", environment=environment) as driven:
            driver = driven.app._driver
            assert driver is not None
            monkeypatch.setattr(driver, "write", written.append)
            await driven.press("y", "2")
            await driven.until(lambda: (programs / "kept").exists() and bool((programs / "kept").read_text()))
            said = "copied by wl-copy, and by the terminal (OSC 52)"
            await driven.until(lambda: any(said == notification.message for notification in driven.app._notifications))

    drive(run)
    name = (programs / "kept").read_text()
    assert name == "__consumer_offsets"
    assert f"\x1b]52;c;{base64.b64encode(name.encode()).decode()}\a" in written


def test_a_cluster_for_production_is_in_the_colour_of_a_warning() -> None:
    assert cluster_tone("prod-eu", "", None) is Tone.WARN
    assert cluster_tone("eu", "Production", None) is Tone.WARN
    assert cluster_tone("products", "", None) is Tone.STRONG
    assert cluster_tone("dev", "", None) is Tone.STRONG
    assert cluster_tone("prod-copy", "", Colour.GREEN) is Tone.GOOD, "the profile has the last word"
    assert _text(cluster_mark("n" * 249)) == "n" * 39 + "…"
    assert _text(cluster_mark("eu\x1b[31m", "the shop")) == "eu\\x1b[31m [the shop]"


def _text(line: Line) -> str:
    return "".join(text for text, _ in line)


@in_event_loop
async def test_the_title_names_the_cluster_in_its_colour() -> None:
    made = ClusterTarget("eu-1", Origin.PROFILE, bootstrap=(("k", 1),), label="the shop", colour=Colour.RED)
    async with dashboard("live", target=made) as driven:
        assert driven.text.startswith(" klamm eu-1 [the shop] › Overview")
        assert ("eu-1", Tone.BAD) in title_line(driven.main)


def test_a_slow_terminal_still_gets_what_was_copied_when_the_dashboard_ends() -> None:
    reading, writing = os.pipe()
    copied = f"\x1b]52;c;{'Y' * 3_000}\a"
    with open(reading, "rb") as terminal, open(writing, "w", encoding="utf-8") as file:
        output = Output(file, lambda: None, lambda: None)
        output.put("x" * 1_000_000)
        output.put(copied)
        output.put("y" * 1_000_000)
        assert output.drop()
        reader = threading.Thread(target=output.close)
        reader.start()
        seen = b""
        while len(seen.rpartition(b"\x1b")[2]) < len(copied) - 1:
            seen += os.read(terminal.fileno(), 65_536)
        reader.join(10)
        assert seen.endswith(copied.encode()) and b"y" not in seen and len(seen) < 500_000


def test_the_screen_is_given_back_however_long_a_copied_text_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_LAST_WRITES_S", 0.1)
    reading, writing = os.pipe()
    copied, given_back = f"\x1b]52;c;{'Y' * 100_000}\a", "\x1b[?1049l"
    with open(reading, "rb") as behind, open(writing, "w", encoding="utf-8") as file:
        output = Output(file, lambda: None, lambda: None)
        output.put(copied)
        output.drop()
        output.put(given_back)
        output.close()
        seen = b""
        while not seen.endswith(given_back.encode()):
            seen += os.read(behind.fileno(), 65_536)
        assert len(seen) < len(copied)
