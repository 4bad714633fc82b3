"""Advice names a screen, a key, or, where the dashboard has neither, the command."""

from __future__ import annotations

import re

import pytest

from cli.framework.remedies import COMMANDS
from engine.admin.cluster.advice import advice_for
from engine.admin.cluster.remedies import Do, Operation, Phrase
from engine.common.errors import ErrorCode
from tui.actions import PAGES
from tui.remedies import spelled


@pytest.mark.parametrize("operation", Operation, ids=lambda item: item.name)
def test_each_operation_says_where(operation: Operation) -> None:
    sentence = spelled(Phrase(Do(operation, "x")))
    command = COMMANDS[operation].split(" {", 1)[0]
    keys = {f"{title} ({key})" for _, key, title in PAGES}
    is_a_screen = any(f"screen {key}" in sentence for key in keys)
    is_a_key = re.search(r"\([ABEQUR]\)|\(:(t|g|zk) x\)", sentence)
    assert is_a_screen or is_a_key or command in sentence, f"{sentence!r} says not where"
    if sentence.startswith("klamm "):
        assert sentence.startswith(command)


def test_a_setting_that_does_not_exist() -> None:
    advice = advice_for(ErrorCode.INVALID_CONFIG, "Unknown topic config name: retention.sm", "topic orders")
    assert advice is not None
    sentence = spelled(advice)
    assert (
        sentence
        == "did you mean retention.ms? see keys and their values with: klamm configs describe --topic orders --all"
    )
