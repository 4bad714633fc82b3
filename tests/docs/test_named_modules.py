"""Every module or file that a docstring, a comment or a page names exists.

The tests follow dotted names (``engine.kafka.zk.client``), paths (``engine/kafka/zk/client.py``), and in pages also the
ends of paths (``zk/client.py``). They leave bare names alone: such a name may be a module, a method or a word. Only
constants (``WHERE_TO_LOOK``) have to exist somewhere, in the pages for those who change the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from doc_pages import ROOT, pages

PACKAGES = ("cli", "engine", "plans", "tui")
FOLDERS = (*PACKAGES, "docs", "fixtures", "tests")
_DOTTED = re.compile(rf"(?<![\w./-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+(?![\w/])")
_PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w(?![\w<*{{…])")
_TEXT = re.compile(r'""".*?"""|(?<!\S)# .*?$', re.DOTALL | re.MULTILINE)
_PART = re.compile(r"`(?:\.\./)*([\w/]+\.py)`")
_CONSTANT = re.compile(r"`(_?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|_[A-Z]+)`")


def sources() -> list[Path]:
    """Return every Python file of the repository."""
    return sorted(path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*.py"))


@cache
def words_of_sources() -> frozenset[str]:
    return frozenset(word for path in sources() for word in re.findall(r"\w+", path.read_text("utf-8")))


def readmes() -> list[Path]:
    """Return the pages that lie beside the code."""
    return sorted(path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("README.md"))


def pages_of_the_code() -> list[Path]:
    """Return the pages for those who change the code."""
    docs = ROOT / "docs"
    return [docs / "architecture.md", docs / "contributing.md", *sorted((docs / "internals").glob("*.md")), *readmes()]


@cache
def source_paths() -> frozenset[str]:
    return frozenset(f"/{path.relative_to(ROOT)}" for path in sources())


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield a file's docstrings and comments, and the lines they begin in."""
    for match in _TEXT.finditer(source):
        yield source.count("\n", 0, match.start()) + 1, match[0]


def is_there(dotted: str) -> bool:
    """Return whether such a module exists, or a module with such a name in it."""
    folder, names = ROOT, dotted.split(".")
    while names and (folder / names[0]).is_dir():
        folder /= names.pop(0)
    module = folder / f"{names[0]}.py" if names else None
    if module is not None and module.is_file():
        names.pop(0)
        return not names or re.search(rf"\b{names[0]}\b", module.read_text("utf-8")) is not None
    return not names


def missing_in(text: str) -> list[str]:
    """Return the modules and paths that a text names and that do not exist."""
    dotted = [match[0] for match in _DOTTED.finditer(text) if not is_there(match[0])]
    return dotted + [match[0] for match in _PATH.finditer(text) if not (ROOT / match[0]).exists()]


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_docstrings_and_comments(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources()
        if path.is_relative_to(ROOT / folder)
        for line, text in texts(path.read_text("utf-8"))
        for name in missing_in(text)
    ]
    assert wrong == []


@pytest.mark.parametrize("page", [*pages(), *readmes()], ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page: Path) -> None:
    text = page.read_text("utf-8")
    parts = [part for part in _PART.findall(text) if not any(path.endswith(f"/{part}") for path in source_paths())]
    assert missing_in(text) + parts == []


@pytest.mark.parametrize("page", pages_of_the_code(), ids=lambda page: str(page.relative_to(ROOT)))
def test_constants_of_pages(page: Path) -> None:
    names = _CONSTANT.findall(page.read_text("utf-8"))
    assert [name for name in names if name not in words_of_sources()] == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("``engine.kafka.zk.client`` and engine/kafka/zk/client.py, the folder ``engine/kafka/zk/``", []),
        ("``engine.kafka.zk.client.ZkClient``; python -m engine.broker.server", []),
        ("see tests/docs, fixtures/znodes and docs/README.md.", []),
        ("one class in tests/support/fake_*.py, engine/admin/<noun>/…, a.engine.b", []),
        ("``engine.kafka.zk.clients``", ["engine.kafka.zk.clients"]),
        ("``engine.kafka.zk.client.Nobody``", ["engine.kafka.zk.client.Nobody"]),
        ("in engine/kafka/zk/clients.py.", ["engine/kafka/zk/clients.py"]),
        ("in ``cli.nowhere.x``, tests/nowhere", ["cli.nowhere.x", "tests/nowhere"]),
    ],
)
def test_what_counts_as_missing(text: str, missing: list[str]) -> None:
    assert missing_in(text) == missing
