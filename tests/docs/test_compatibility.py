"""The page on compatibility leaves no command out, and names only tests that exist."""

from __future__ import annotations

import re

from doc_pages import DOCS, ROOT

from cli.table_of_commands import ENTRIES

PAGE = (DOCS / "compatibility.md").read_text("utf-8")


def test_every_command_has_its_row() -> None:
    table = PAGE.partition("## The command line")[2].partition("\n## ")[0]
    names = {name for row in table.splitlines() if row.startswith("| `") for name in re.findall(r"`([\w-]+)`", row)}
    assert {entry.name for entry in ENTRIES} - names == set(), "say in docs/compatibility.md what is done of it"


def test_tests_that_are_named_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", PAGE)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []
