"""The web site has every page of the docs, once."""

from __future__ import annotations

import tomllib
from typing import Any

from doc_pages import DOCS, ROOT


def _named(nav: Any) -> list[str]:
    """Return the pages that a navigation names, in its order."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in _named(part)]


def test_every_page_is_in_the_navigation_once() -> None:
    with (ROOT / "zensical.toml").open("rb") as file:
        named = _named(tomllib.load(file)["project"]["nav"])
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
