"""The lists of packages in pyproject.toml are complete: nothing would check a package that is not listed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import grimp

ROOT = Path(__file__).parents[2]
TOOLS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
PACKAGES = {file.parent.name for file in ROOT.glob("*/__init__.py")}


def contract(name: str) -> dict[str, Any]:
    (matching,) = (each for each in TOOLS["importlinter"]["contracts"] if each["name"] == name)
    return matching


def test_imports_of_every_package_are_looked_at() -> None:
    assert {"cli", "tui", "engine", "plans"} <= PACKAGES
    assert set(TOOLS["importlinter"]["root_packages"]) == PACKAGES


def test_types_of_every_package_are_looked_at() -> None:
    assert set(TOOLS["mypy"]["packages"]) == PACKAGES


def test_all_that_does_no_io_is_pure() -> None:
    inside = contract("Inside kafka")["layers"]
    names = [name.strip() for layer in inside[inside.index("formats") :] for name in layer.split("|")]
    vocabulary = {f"engine.kafka.{name}" for name in names}
    assert set(contract("Pure packages stay pure")["source_modules"]) == vocabulary | {"engine.common", "plans"}


def test_no_other_contract_lists_the_packages_of_the_engine() -> None:
    """Contracts that hold everywhere say ``*``."""
    for each in TOOLS["importlinter"]["contracts"]:
        if each["type"] == "forbidden" and each["name"] != "Pure packages stay pure":
            sources, forbidden = each["source_modules"], each["forbidden_modules"]
            assert sum(name.startswith("engine.") for name in sources) <= 1, each["name"]
            assert sum(name.startswith("engine.") for name in forbidden) <= 1, each["name"]


def test_no_files_import_each_other_in_a_loop() -> None:
    """This includes imports under TYPE_CHECKING and inside functions.

    What both files need belongs in a lower module.
    """
    graph = grimp.build_graph(*sorted(PACKAGES), cache_dir=None)
    left = set(graph.modules)
    while free := {m for m in left if not (graph.find_modules_directly_imported_by(m) & left)}:
        left -= free
    while free := {m for m in left if not (graph.find_modules_that_directly_import(m) & left)}:
        left -= free
    assert sorted(left) == []
