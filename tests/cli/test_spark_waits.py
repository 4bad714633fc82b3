"""What a person sees while a Spark job waits: the reason, and the time so far."""

from __future__ import annotations

import re
import sys
import time

import pytest
from patience import within

from cli.commands.spark.shared import waits_shown
from cli.framework import progress
from cli.framework.invocation import Invocation
from cli.framework.talk import Talk, Verbosity
from cli.output.format import OutputFormat


class Heard:
    """A terminal that notes what it gets."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing is buffered."""

    def isatty(self) -> bool:
        return True

    def wait_for(self, pattern: str) -> None:
        is_in_time = within(60)
        while not re.search(pattern, self.text):
            assert is_in_time(), self.text
            time.sleep(0.01)


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """The test itself calls it: pytest installs its own stderr after the fixtures."""
    terminal = Heard()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_TERMINAL_PACE_S", 0.0)
    return terminal


def test_each_wait_is_named_and_its_line_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = terminal_of(monkeypatch)
    with waits_shown(Invocation(OutputFormat.PLAIN, Talk())) as wait:
        wait("spark", "starting")
        heard.wait_for(r"spark: starting, \d+ s$")
        wait("sample 3", "finding groups")
        heard.wait_for(r"sample 3: finding groups, \d+ s$")
        wait("", "")
        assert heard.text.endswith("\r\x1b[K"), "before anything else is said"
        said = heard.text
    assert heard.text == said


def test_a_failure_takes_the_line_away(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = terminal_of(monkeypatch)
    with pytest.raises(RuntimeError), waits_shown(Invocation(OutputFormat.PLAIN, Talk())) as wait:
        wait("spark", "starting")
        heard.wait_for("starting")
        raise RuntimeError
    assert heard.text.endswith("\r\x1b[K")


def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = terminal_of(monkeypatch)
    with waits_shown(Invocation(OutputFormat.PLAIN, Talk(Verbosity.QUIET))) as wait:
        wait("spark", "starting")
    assert heard.text == ""
