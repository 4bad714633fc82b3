"""A person at a terminal: questions and answers."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from klamm_program import PROGRAM, environment, in_process

from cli.framework.failure import Failure
from cli.framework.invocation import Invocation, Stop
from cli.framework.talk import Talk, Verbosity
from cli.output.format import OutputFormat
from engine.local.cluster import LocalCluster


class Person(Talk):
    """A person who gives the test's answers."""

    can_ask = True

    def __init__(self, answer: bool | None) -> None:
        super().__init__(Verbosity.NORMAL)
        self.answer = answer
        self.asked: list[tuple[str, bool]] = []

    def ask(self, question: str, *, is_yes_default: bool) -> bool:
        self.asked.append((question, is_yes_default))
        return is_yes_default if self.answer is None else self.answer


class Nobody(Talk):
    """A script."""

    can_ask = False


@pytest.mark.parametrize(
    ("talk", "is_destructive", "is_confirmed", "goes_on"),
    [
        (Person(True), True, False, True),
        (Person(False), True, False, False),
        (Person(None), True, False, False),
        (Person(None), False, False, True),
        (Person(False), True, True, True),
        (Nobody(), False, False, True),
        (Nobody(), True, True, True),
        (Nobody(), True, False, False),
    ],
)
def test_who_is_asked_and_what_an_empty_answer_means(
    talk: Talk, is_destructive: bool, is_confirmed: bool, goes_on: bool
) -> None:
    invocation = Invocation(OutputFormat.PLAIN, talk, is_confirmed=is_confirmed)
    if goes_on:
        assert invocation.confirm("delete topic t", is_destructive=is_destructive)
    else:
        with pytest.raises(Stop) as stopped:
            invocation.confirm("delete topic t", is_destructive=is_destructive)
        failure: Failure = stopped.value.failure
        assert failure.code == 2
        if isinstance(talk, Nobody):
            assert failure.message == "refusing to delete topic t without confirmation"
            assert failure.hint is not None and "--yes" in failure.hint
    if isinstance(talk, Person) and not is_confirmed:
        assert talk.asked == [("Delete topic t?", not is_destructive)]


def test_a_dry_run_asks_nobody() -> None:
    person = Person(True)
    invocation = Invocation(OutputFormat.PLAIN, person, is_dry_run=True)
    assert not invocation.confirm("delete topic t", is_destructive=True)
    assert person.asked == []


@pytest.mark.parametrize(("answer", "is_gone"), [("n", False), ("y", True)])
def test_deleting_at_a_terminal(
    live_cluster: LocalCluster,
    topic_name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    is_gone: bool,
) -> None:
    where = ("--bootstrap-server", live_cluster.bootstrap_servers)
    assert in_process("topics", "create", topic_name, *where, capture=capsys).code == 0
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "topics", "delete", topic_name, *where],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment(tmp_path, NO_COLOR="1"),
    )
    os.close(theirs)
    asked = b""
    while b"[y/N]" not in asked:
        asked += os.read(ours, 1024)
    assert f"Delete topic {topic_name}" in asked.decode()
    os.write(ours, f"{answer}\n".encode())
    process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == (0 if is_gone else 2)
    assert (in_process("topics", "describe", topic_name, *where, capture=capsys).code == 2) == is_gone


HOSTILE = b"\x1b]0;mine\x07\x1b[2J \xc2\x9b1m \x7f\rover \xff \xc3\xa9\ttab"
SHOWN = "\\x1b]0;mine\\x07\\x1b[2J \\x9b1m \\x7f\\rover \\xff \N{LATIN SMALL LETTER E WITH ACUTE}\ttab\n"


@pytest.mark.parametrize("command", [("consume",), ("kafka-console-consumer", "--topic")], ids=["ours", "Kafka's"])
def test_a_record_gives_the_terminal_no_orders(
    live_cluster: LocalCluster,
    topic_name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    where = ("--bootstrap-server", live_cluster.bootstrap_servers)
    assert in_process("topics", "create", topic_name, *where, capture=capsys).code == 0
    assert in_process("produce", topic_name, *where, stdin=HOSTILE + b"\n", capture=capsys).code == 0
    reading = (PROGRAM, *command, topic_name, *where, "--from-beginning", "--max-messages", "1")
    piped = subprocess.run(reading, env=environment(tmp_path), capture_output=True, timeout=60, check=True)
    assert piped.stdout == HOSTILE + b"\n", "a pipe gets the bytes"
    assert shown_on_terminal(reading, tmp_path) == SHOWN


@pytest.mark.parametrize("output", ["csv", "jsonl", "plain", "table", "yaml"])
def test_no_form_gives_the_terminal_orders(output: str, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=\\u009b2J\\u001b[2J\\u007f\n")
    shown = shown_on_terminal((PROGRAM, "dump", tmp_path / "meta.properties", "-o", output), tmp_path)
    assert "broker.id" in shown
    assert [c for c in shown if not c.isprintable() and c != "\n"] == []


def shown_on_terminal(command: Sequence[str | Path], folder: Path) -> str:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
        env=environment(folder, NO_COLOR="1"),
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while data := _read(ours):
            shown += data
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    # The terminal driver ends its lines with a carriage return.
    return shown.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    """Return what a program writes next; nothing when it has ended."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
