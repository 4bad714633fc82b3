"""What the docs tell a reader to type exists: commands and every option."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import ROOT, Command, pages, quoted_commands, typed_commands
from typed_command import fault_of

MADE = ("docs/reference/cli.md",)
"""The page is generated from the commands themselves, and a separate test keeps it true."""
STANDS_FOR_MORE = frozenset("…<>[]")


def _faults(commands: Iterator[Command], *, is_whole: bool = True) -> list[str]:
    faults = []
    for line, words in commands:
        fault = fault_of(words, is_whole=is_whole)
        if fault is not None:
            faults.append(f"line {line}: klamm {' '.join(words)}: {fault}")
    return faults


def _names() -> list[str]:
    return [name for page in pages() if (name := str(page.relative_to(ROOT))) not in MADE]


@pytest.mark.parametrize("name", _names())
def test_typed_commands_exist(name: str) -> None:
    assert _faults(typed_commands(ROOT / name)) == []


@pytest.mark.parametrize("name", _names())
def test_commands_named_in_the_text_exist(name: str) -> None:
    complete = (c for c in quoted_commands(ROOT / name) if not STANDS_FOR_MORE & set("".join(c.words)))
    assert _faults(complete, is_whole=False) == []


def test_commands_are_found_in_the_readme() -> None:
    typed = [words for _, words in typed_commands(ROOT / "README.md")]
    assert ["local", "down"] in typed
    assert ["produce", "orders", "--compression", "zstd"] in typed, "behind a pipe as well"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["topcs", "list"], "no such command"),
        (["topics", "lst"], "No such command"),
        (["topics"], "missing"),
        (["topics", "list", "--nope"], "No such option"),
        (["doctor", "more"], "nexpected"),
        (["local", "kill"], "issing"),
    ],
)
def test_mistakes_are_noticed(words: list[str], fault: str) -> None:
    noticed = fault_of(words)
    assert noticed is not None
    assert fault in noticed


def test_what_is_only_named_needs_no_arguments() -> None:
    assert fault_of(["local", "kill", "--signal", "STOP"], is_whole=False) is None
    assert fault_of(["local"], is_whole=False) is None
    assert fault_of(["local", "kill", "--sig"], is_whole=False) is not None
    assert fault_of(["locals"], is_whole=False) is not None


def test_a_command_of_a_page_is_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ seq 3 | klamm produce t --acks 1 && klamm doctor\nklamm said\n```\n`klamm zk tree`\n"
        "```sh\nklamm top\n```\n    klamm lag -o json | jq .\n"
    )
    assert [words for _, words in typed_commands(page)] == [
        ["produce", "t", "--acks", "1"], ["doctor"], ["top"], ["lag", "-o", "json"],
    ]  # fmt: skip
    assert [words for _, words in quoted_commands(page)] == [["zk", "tree"]]
