"""The page of APIs matches the registry, and leaves no API out."""

from __future__ import annotations

import pytest

from engine.broker.handlers.registry import all_handlers
from engine.broker.server.api_table import PAGE, page, summary
from engine.kafka.protocol.api_keys import API_SPECS, KRAFT_ONLY


def test_the_page_is_true() -> None:
    assert PAGE.read_text("utf-8") == page(), "make it again: python -m engine.broker.server.api_table"


def test_every_api_has_one_row() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| ") and line.split()[1].isdigit()]
    assert sorted(int(row.split()[1]) for row in rows) == sorted(set(API_SPECS) - KRAFT_ONLY)


def test_answered_are_those_with_a_handler() -> None:
    answered, _, waiting = page().partition("## Declared, not answered yet")
    for key, spec in API_SPECS.items():
        assert (f"| {int(key)} | {spec.name} |" in answered) == (key in all_handlers())
        assert (f"| {int(key)} | {spec.name} |" in waiting) == (key not in all_handlers() and key not in KRAFT_ONLY)


def test_the_summary_is_the_first_sentence_of_the_behaviour() -> None:
    text = "Fetch (1): v0.\n\nBehaviour\n* Reads ``a.b`` over\n  two lines; then: more. And this.\n* Not this.\n"
    assert summary(text) == "Reads `a.b` over two lines; then: more."
    with pytest.raises(ValueError, match="no Behaviour"):
        summary("Fetch (1): v0.\n")
