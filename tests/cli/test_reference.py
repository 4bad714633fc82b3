"""The reference page matches the commands."""

from __future__ import annotations

from cli.reference import PAGE, page


def test_the_page_is_true() -> None:
    assert PAGE.read_text("utf-8") == page(), "make it again: python -m cli.reference"
