"""The testing guide for other projects names every argument and every method, and no others."""

from __future__ import annotations

import inspect
import re

from doc_pages import DOCS

from klamm.testing import LocalBroker, LocalCluster, LocalZooKeeper

PAGE = (DOCS / "guides" / "in-your-tests.md").read_text("utf-8")


def rows(heading: str) -> list[tuple[str, str]]:
    """Return the two columns of the table below a heading."""
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split(" | ", 1) for line in part.splitlines() if line.startswith("| `")]
    return [(first, second) for first, second in cells]


def named(text: str) -> set[str]:
    return {name.partition("(")[0] for name in re.findall(r"`([a-z_]+(?:\(\w*\))?)`", text)}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_every_argument_is_told() -> None:
    arguments = set().union(*(named(first) for first, _ in rows("Arguments")))
    assert arguments == set(inspect.signature(LocalCluster).parameters)


def test_every_method_is_told() -> None:
    table = rows("Methods and attributes")
    assert set().union(*(named(first) for first, _ in table)) - {"with"} == public(LocalCluster)
    methods = {first: named(second) for first, second in table}
    assert next(names for first, names in methods.items() if "`broker(id)`" in first) == public(LocalBroker)
    assert next(names for first, names in methods.items() if first == "| `zookeeper`") == public(LocalZooKeeper)
