"""Every link in the docs leads somewhere, and the index leads to every page."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import DOCS, INDEX, ROOT, anchors, links, pages


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_links_resolve(page: Path) -> None:
    broken = []
    for target, anchor in links(page):
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    assert broken == []


def test_the_index_names_every_page() -> None:
    named = {(DOCS / target).resolve() for target, _ in links(INDEX) if target}
    assert set(DOCS.rglob("*.md")) - named == {INDEX}


def test_the_readme_leads_to_the_index() -> None:
    targets = {(ROOT / target).resolve() for target, _ in links(ROOT / "README.md")}
    assert targets & {INDEX, DOCS / "architecture.md"}, "a reader of README.md must find the docs"


def test_broken_links_and_anchors_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c's d\n## Twice\n## Twice\n[one](other.md#x) [two\nlines](#twice-1)\n```\n[no](link.md)\n# no\n```\n"
        "[site](https://example.org/a#b)\n",
        "utf-8",
    )
    assert anchors(page) == {"a-b-cs-d", "twice", "twice-1"}
    assert links(page) == [("other.md", "x"), ("", "twice-1")]
