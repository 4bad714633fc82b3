"""``klamm top`` as a program: on a terminal of its own, without one, and how it ends."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dashboards import dashboard
from event_loop import in_event_loop
from fake_feed import fake_feed
from klamm_program import PROGRAM, Ran, environment, in_process, klamm

from cli.commands.top import SCREENS
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.watch.frame import LinkState, Stage
from engine.admin.watch.recording import FrameWriter, Recording
from engine.admin.watch.replay_feed import ReplayFeed
from tui.actions import PAGES
from tui.drawing.units import clock_time
from tui.terminal import OPENING

NOBODY = ("--bootstrap-server", "127.0.0.1:1")
WAIT_S = 40.0


class Terminal:
    """The program on a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, slave: int) -> None:
        self.process, self.master, self.slave = process, master, slave
        self.untouched: list[Any] = []
        """The terminal's settings before the program began."""
        self.seen = b""

    def read_until(self, text: bytes) -> None:
        """Read the output until it contains a text."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen[-2000:]
            self._read(0.2)

    def read_until_words(self, text: str) -> None:
        """Like ``read_until``, for text that a box may wrap over several lines."""
        deadline = time.monotonic() + WAIT_S
        while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[^!-~]", "", self.seen.decode("utf-8", "replace")):
            assert time.monotonic() < deadline, self.seen[-2000:]
            self._read(0.2)

    def _read(self, wait_s: float) -> None:
        if select.select([self.master], [], [], wait_s)[0]:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                return

    def fill(self, keys: bytes) -> None:
        """Press keys until the terminal takes no more output, for nobody reads it; then press them some times more."""
        deadline = time.monotonic() + WAIT_S
        more = 25
        while more:
            assert time.monotonic() < deadline, "it always takes more"
            os.write(self.master, keys)
            time.sleep(0.02)
            more -= not select.select([], [self.slave], [], 0.1)[1]

    def wait_until_idle(self) -> None:
        """Wait until the program has handled what was pressed."""
        deadline = time.monotonic() + WAIT_S
        before, now = -1, self._cpu_ticks()
        while now > before + 2:
            assert time.monotonic() < deadline, "it never rests"
            time.sleep(0.5)
            before, now = now, self._cpu_ticks()

    def _cpu_ticks(self) -> int:
        _, _, fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")
        return sum(map(int, fields.split()[11:13]))

    def hang_up(self) -> None:
        """Take the terminal away."""
        os.close(self.master)
        os.close(self.slave)
        self.master = self.slave = -1

    def ended(self) -> int:
        """Wait for the end, and read the output meanwhile."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self._read(0.05)
        self._read(0.2)
        return self.process.returncode


@contextmanager
def terminal(
    *words: str | Path, folder: Path, ignores_hup: bool = False, columns: int = 100, **env: str
) -> Iterator[Terminal]:
    """Run the program on the terminal of its session, as a shell does; with ``ignores_hup``, as by nohup."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (30, columns))
    untouched = termios.tcgetattr(slave)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignores_hup else signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [PROGRAM, *map(str, words)], stdin=slave, stdout=slave, stderr=slave, cwd=folder,
            env=environment(folder, **env), start_new_session=True,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGHUP, before)
    made = Terminal(process, master, slave)
    made.untouched = untouched
    try:
        yield made
    finally:
        process.kill()
        process.wait()
        if made.master >= 0:
            made.hang_up()


Here = Callable[..., Ran]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run the program in this process, in the test's folder, for runs that end before a dashboard is drawn."""
    monkeypatch.chdir(tmp_path)
    for name, folder in (("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "state")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    return lambda *words: in_process(*words, capture=capsys)


@pytest.mark.parametrize(("how", "code"), [("q", 0), ("ctrl-c", 130), ("term", 143), ("int", 130)])
def test_it_ends_with_its_code_and_leaves_the_terminal_as_it_was(how: str, code: int, tmp_path: Path) -> None:
    with terminal("top", *NOBODY, folder=tmp_path) as top:
        top.read_until(b"127.0.0.1:1")
        assert termios.tcgetattr(top.slave) != top.untouched, "it reads single keys"
        if how in ("term", "int"):
            os.kill(top.process.pid, signal.SIGTERM if how == "term" else signal.SIGINT)
        else:
            os.write(top.master, b"q" if how == "q" else b"\x03")
        assert top.ended() == code
        assert termios.tcgetattr(top.slave) == top.untouched
        assert top.seen.rindex(b"\x1b[?1049l") > top.seen.rindex(b"\x1b[?1049h"), "the screen before is back"
        assert b"\x1b[?25h" in top.seen[top.seen.rindex(b"\x1b[?1049l") - 200 :], "and so is the cursor"
        assert b"Traceback" not in top.seen
    kept = (tmp_path / "state" / "klamm" / "top.log").read_text("utf-8")
    assert "WARNING tui.state.status: The dashboard is disconnected. cluster=127.0.0.1:1" in kept


def test_the_screen_is_not_empty_before_the_first_picture(tmp_path: Path) -> None:
    with terminal("top", *NOBODY, folder=tmp_path) as top:
        top.read_until(b"127.0.0.1:1")
    begin = top.seen.index(b"\x1b[?1049h")
    assert begin < top.seen.index(OPENING.encode()) < top.seen.index(b"127.0.0.1:1")


def test_the_command_begins_with_any_screen_of_the_dashboard() -> None:
    """It names them itself, because its help must not load what draws them."""
    assert tuple(name for name, _, _ in PAGES) == SCREENS


def test_a_key_right_after_esc_closes_a_window_and_then_does_its_own(tmp_path: Path) -> None:
    with terminal("top", *NOBODY, folder=tmp_path) as top:
        top.read_until(b"127.0.0.1:1")
        os.write(top.master, b"?")
        top.read_until_words("Keysofoverview")
        os.write(top.master, b"\x1b2")
        top.read_until_words("brokersarenotknownyet")
        os.write(top.master, b":")
        os.write(top.master, b"\x1bq")
        assert top.ended() == 0


@pytest.mark.parametrize("is_ignored", [False, True], ids=["HUP", "nohup"])
def test_it_ends_when_its_terminal_is_gone(is_ignored: bool, tmp_path: Path) -> None:
    with terminal("top", *NOBODY, folder=tmp_path, ignores_hup=is_ignored) as top:
        top.read_until(b"127.0.0.1:1")
        top.hang_up()
        assert top.process.wait(WAIT_S) == 143
    assert "Traceback" not in (tmp_path / "state" / "klamm" / "top.log").read_text("utf-8")


def test_a_second_signal_ends_it_when_the_terminal_takes_no_output(tmp_path: Path) -> None:
    with terminal("top", *NOBODY, folder=tmp_path) as top:
        top.read_until(b"127.0.0.1:1")
        for _ in range(30):  # nobody reads what each of these screens takes
            os.write(top.master, b"23")
            time.sleep(0.02)
        deadline = time.monotonic() + WAIT_S
        while top.process.poll() is None:
            assert time.monotonic() < deadline, "it does not hear the signal"
            top.process.terminate()
            time.sleep(0.2)
    assert top.process.returncode in (143, -signal.SIGTERM)


def test_keys_are_heard_while_the_terminal_takes_no_output(tmp_path: Path) -> None:
    with terminal("top", *NOBODY, folder=tmp_path) as top:
        top.read_until(b"127.0.0.1:1")
        top.fill(b"23")
        os.write(top.master, b"q")
        assert top.process.wait(WAIT_S) == 0


@pytest.mark.parametrize("is_blocking", [True, False])
def test_the_screen_is_whole_once_a_slow_terminal_has_caught_up(tmp_path: Path, *, is_blocking: bool) -> None:
    """Another program that has the terminal may let writes fail while it is full."""
    with terminal("top", "--replay", recording(tmp_path), folder=tmp_path) as top:
        top.read_until(b"recording 5/5")
        os.set_blocking(top.slave, is_blocking)
        top.fill(b"23")
        os.write(top.master, b"?")
        top.wait_until_idle()
        top.read_until_words("Keysoftopics")
        os.write(top.master, b"\x1bq")
        assert top.ended() == 0


def test_a_log_file_that_cannot_be_written_keeps_nobody_from_the_dashboard(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    with terminal("top", *NOBODY, "--screen", "logs", folder=tmp_path) as top:
        top.read_until_words("nofilekeepsit")
        os.write(top.master, b"q")
        assert top.ended() == 0


def test_a_terminal_without_utf8_gets_ascii(tmp_path: Path) -> None:
    with terminal("top", *NOBODY, folder=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0") as top:
        top.read_until(b"disconnected")
        os.write(top.master, b"q")
        assert top.ended() == 0
        assert top.seen.isascii()


def test_without_colour_nothing_is_coloured(tmp_path: Path) -> None:
    words = ("--theme", "contrast", "--replay", recording(tmp_path))
    with terminal("top", *words, folder=tmp_path, columns=120, NO_COLOR="1") as top:
        top.read_until(b"recording 5/5")
        for key, then in (
            (b"4", "Partitions"), (b"\x1b[B", ""), (b"t", "1tagged"), (b",", "recording4/5"), (b"/c\r", "/c"),
            (b"<", "recording1/5"), (b"7", "Plans"), (b"1", "Overview"), (b"5", "Groups"), (b"\x14", "theme"),
            (b"?", "Keysof"),
        ):  # fmt: skip
            before, top.seen = top.seen, b""
            os.write(top.master, key)
            top.read_until_words(then)
            top.seen = before + top.seen
        os.write(top.master, b"\x03")
        assert top.ended() == 130
    assert _colours(top.seen) == set()
    assert {"7", "4", "2", "1"} <= _attributes(top.seen), "reversed, underlined, dim and bold"


_GREYS = (16, 231, *range(232, 256))
"""In the palette of 256 colours."""


def test_an_empty_no_color_says_nothing(tmp_path: Path) -> None:
    with terminal("top", *NOBODY, folder=tmp_path, NO_COLOR="") as top:
        top.read_until(b"disconnected")
        os.write(top.master, b"q")
        assert top.ended() == 0
    assert any(int(colour.split(";")[2]) not in _GREYS for colour in _colours(top.seen))


def _orders(seen: bytes) -> list[str]:
    """Return the parameters of each order that changes how text looks (SGR)."""
    return [found.decode() for found in re.findall(rb"\x1b\[([0-9;:]*)m", seen)]


def _colours(seen: bytes) -> set[str]:
    """Return the orders for colours, whole: 30 to 49, and 90 to 107, alone or among others."""
    found = set()
    for order in _orders(seen):
        parts = re.split("[;:]", order)
        at = next((i for i, part in enumerate(parts) if re.fullmatch(r"[34][0-9]|9[0-7]|10[0-7]", part)), None)
        if at is not None:
            found.add(";".join(parts[at : at + 5]))
    return found


def _attributes(seen: bytes) -> set[str]:
    return {part for order in _orders(seen) for part in order.split(";")}


def test_without_a_terminal_it_says_what_can_be_done(tmp_path: Path) -> None:
    ran = klamm("top", *NOBODY, folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "the dashboard needs a terminal" in ran.err
    assert "--screenshot" in ran.err
    assert "--record" in ran.err


def test_it_says_when_no_cluster_is_named(here: Here) -> None:
    ran = here("top")
    assert (ran.code, ran.out) == (2, "")
    assert "no cluster is named" in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--screen", "nowhere"), "--screen must be one of overview, brokers"),
        (("--refresh", "0.1"), "--refresh must be 0.5 to 10 seconds"),
        (("--screenshot", "no/such/folder/x.svg"), "there is no folder"),
        (("--screenshot", "x.svg", "--theme", "pink"), "--theme must be one of dark, light, contrast, monochrome"),
        (("--record", "a", "--replay", "b"), "contradict each other"),
        (("--replay", "absent.rec", "--screenshot", "x.svg"), "no such recording"),
    ],
)
def test_wrong_use_is_refused(words: tuple[str, ...], told: str, here: Here) -> None:
    ran = here("top", *NOBODY, *words)
    assert ran.code == 2, ran.err
    assert told in ran.err


def recording(folder: Path) -> Path:
    """Write a recording of a made-up cluster that loses a broker."""
    path, feed = folder / "made-up.rec", fake_feed("live", plays=False)
    writer = FrameWriter(path, "made-up")
    for tick in range(5):
        if tick == 3:
            feed.cluster.kill(2)
        writer.write(feed.tick())
    writer.close()
    return path


def test_a_recording_is_played_without_a_cluster_and_can_be_stepped_through(tmp_path: Path) -> None:
    with terminal("top", "--replay", recording(tmp_path), folder=tmp_path) as top:
        top.read_until(b"recording 1/5")
        os.write(top.master, b">")
        top.read_until(b"recording 5/5")
        top.read_until(b"CRITICAL")
        top.seen = b""
        os.write(top.master, b",")
        top.read_until(b"4/5")
        os.write(top.master, b"q")
        assert top.ended() == 0


@in_event_loop
async def test_a_recording_says_of_which_instant_the_frame_is(tmp_path: Path) -> None:
    feed = ReplayFeed(recording(tmp_path))
    feed.pause()
    async with dashboard(feed) as driven:  # type: ignore[arg-type]
        frame = driven.app.board.frame
        assert frame is not None
        assert driven.text.splitlines()[0].rstrip().endswith(f"at {clock_time(frame.at_ms)}")


@in_event_loop
async def test_a_recording_is_played_faster_and_slower_within_bounds(tmp_path: Path) -> None:
    feed = ReplayFeed(recording(tmp_path))
    feed.pause()
    async with dashboard(feed) as driven:  # type: ignore[arg-type]
        # One more press than it takes from speed 1, and from there.
        for key, count, speed in (("equals_sign", 10, 512), ("minus", 16, 1 / 64)):
            await driven.press(*[key] * count)
            assert feed.speed == speed


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: b'{"klamm_recording": 99, "shape": "x"}\n', "made-up.rec"),
        (lambda data: b"", "made-up.rec"),
        (lambda data: data[: data.index(b"\n") + 30], "made-up.rec"),
    ],
)
def test_a_recording_that_cannot_be_read_is_refused(change: object, told: str, tmp_path: Path, here: Here) -> None:
    path = recording(tmp_path)
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    ran = here("top", "--replay", path, "--screenshot", "x.svg")
    assert (ran.code, told in ran.err) == (2, True), ran.err
    assert "Traceback" not in ran.err


def test_a_recording_that_is_cut_short_is_played_as_far_as_it_goes(tmp_path: Path) -> None:
    path = recording(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])
    ran = klamm("top", "--replay", path, "--screenshot", "x.svg", folder=tmp_path, env={"COLUMNS": "150"})
    assert ran.code == 0, ran.err
    assert "/4&#160;×1&#160;(the&#160;file&#160;is&#160;cut&#160;off)" in (tmp_path / "x.svg").read_text("utf-8")


def test_a_recording_of_one_frame_is_drawn_without_waiting_for_more(tmp_path: Path) -> None:
    path = tmp_path / "one.rec"
    writer, frame = FrameWriter(path, "made-up"), fake_feed("live", plays=False).tick()
    unread = {
        stage: replace(status, read_at_ms=None) for stage, status in frame.stages.items() if stage is Stage.GROUPS
    }
    writer.write(replace(frame, stages={**frame.stages, **unread}))
    writer.close()
    ran = klamm("top", "--replay", path, "--screenshot", "x.svg", "--timeout", "600", folder=tmp_path)
    assert ran.code == 0, ran.err
    assert "recording" in (tmp_path / "x.svg").read_text("utf-8")


@pytest.mark.parametrize("frames", [1, 2])
def test_a_picture_of_the_first_frame_shows_all_of_the_screen(frames: int, tmp_path: Path) -> None:
    """The lines under the title have no height before the first frame: the screen is laid out again for them."""
    path = tmp_path / "short.rec"
    writer, frame = FrameWriter(path, "made-up"), fake_feed("live", plays=False).tick()
    for number in range(frames):
        writer.write(replace(frame, sequence=frame.sequence + number))
    writer.close()
    ran = klamm("top", "--replay", path, "--screen", "groups", "--screenshot", "x.svg", folder=tmp_path)
    assert ran.code == 0, ran.err
    drawn = (tmp_path / "x.svg").read_text("utf-8").replace("&#160;", " ")
    assert "● live" in drawn and "data 0.0s old" in drawn
    assert "3 groups," in drawn and "search-index" in drawn
    assert "enter" in drawn and "quit" in drawn, "the line at the bottom"


def test_a_picture_of_nobody_says_so_and_ends_with_3(tmp_path: Path) -> None:
    ran = klamm("top", *NOBODY, "--screenshot", "x.svg", "--timeout", "3", folder=tmp_path)
    told = "error: the cluster did not answer in time: "
    assert (ran.code, ran.err.startswith(told), "hint: x.svg shows who" in ran.err) == (3, True, True), ran.err
    assert "disconnected" in (tmp_path / "x.svg").read_text("utf-8")


def has_recorded_the_loss(path: Path) -> bool:
    """Whether a recording that is being made says that nobody answers, in a frame that comes a tick after the first."""
    try:
        recording = Recording(path)
    except (BadRequest, NotFound):
        return False
    try:
        frame = recording.frame(recording.count - 1)
        elapsed_ms = frame.at_ms - recording.time_of(0)
    finally:
        recording.close()
    return elapsed_ms >= 500 and any(link.state is LinkState.LOST for link in frame.links.values())


def test_a_recording_is_made_without_a_terminal_until_term(tmp_path: Path) -> None:
    words = [PROGRAM, "top", *NOBODY, "--record", "r.rec"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment(tmp_path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + WAIT_S
        path = tmp_path / "r.rec"
        while not has_recorded_the_loss(path):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        _, said = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 143, said
    assert b"frames" in said
    ran = klamm("top", "--replay", path, "--screenshot", "x.svg", "--timeout", "3", folder=tmp_path)
    assert "disconnected" in (tmp_path / "x.svg").read_text("utf-8"), ran.err
    again = klamm("top", *NOBODY, "--record", path, folder=tmp_path)
    assert (again.code, "exists already" in again.err) == (2, True)


def test_mistakes_in_the_key_file_are_told_at_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "klamm"
    folder.mkdir(parents=True)
    (folder / "keys.toml").write_text('[keys]\n\n"rows.filtr" = "f"\n', "utf-8")
    with terminal("top", *NOBODY, folder=tmp_path) as top:
        top.read_until_words("keys.toml:3:")
        os.write(top.master, b"q")
        assert top.ended() == 0


def test_what_is_not_needed_for_the_first_picture_is_not_imported_before_it(tmp_path: Path) -> None:
    late = (
        "kazoo",
        "pyspark",
        "engine.admin.znodes",
        "engine.admin.state_changes.merge",
        "engine.admin.watch.by_znode",
        "engine.admin.reassignment.plan_runs",
        "plans",
        "tui.planning.desk",
    )
    code = f"import sys, tui.run; print([name for name in {late} if name in sys.modules])"
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"
