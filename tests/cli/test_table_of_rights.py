"""The table of rights names every command that asks a cluster, and the stories hold each of its rows."""

from __future__ import annotations

from typing import Any

import pytest
from rights_story import CASES, CELLS, Cell
from znode_rights_story import ZNODE_CELLS

from cli.framework.root import load
from cli.table_of_commands import ENTRIES
from cli.table_of_rights import RIGHTS, ZNODES, Need, Without, needs_of, znode_needs_of
from engine.kafka.acls import IMPLIED, SUPPORTED


def test_every_command_that_asks_a_cluster_has_its_rights_and_a_case() -> None:
    asking = set()
    for entry in ENTRIES:
        command: Any = load(entry)
        for word, subcommand in getattr(command, "commands", {"": command}).items():
            if any("--bootstrap-server" in param.opts for param in subcommand.params):
                asking.add(f"{entry.name} {word}".strip())
    # It only writes a name for a cluster.
    asking.remove("profiles add")
    assert set(RIGHTS) == asking
    held = {Cell(case).command for case in CASES}
    assert asking - held == {words for words in RIGHTS if not RIGHTS[words] and words not in held}


def test_each_option_of_the_table_has_a_case_unless_it_is_a_throttle() -> None:
    shown = {(cell.command, need) for cell in CELLS if cell.missing is None for need in cell.needs}
    absent = {
        (words, need.right)
        for words in {cell.command for cell in CELLS}
        for need in needs_of(words)
        if (words, need) not in shown and "--throttle" not in need.options
    }
    # tests/tui/test_rights.py presses the dashboard's key, test_rights.py looks for how long records wait.
    beside = {(words, Need.of("Read Topic").right) for words in ("top", "exporter", "lag")}
    assert absent == {("perf producer", Need.of("Write TransactionalId").right), *beside}


@pytest.mark.parametrize("words", RIGHTS)
def test_a_row_exists_in_kafka_and_is_not_implied_by_another(words: str) -> None:
    always = [need.right for need in needs_of(words) if not need.options and need.without is not Without.BESIDE]
    for operation, resource_type in always:
        assert operation in SUPPORTED[resource_type]
        assert not any((implied, resource_type) in always for implied in IMPLIED.get(operation, ()))


def test_each_row_about_znodes_has_a_cell() -> None:
    shown = {(cell.command, need) for cell in ZNODE_CELLS for need in cell.needs}
    assert shown == {(words, need) for words in ZNODES for need in znode_needs_of(words)}
