"""The guide to the dashboard lists every key as the dashboard itself explains it."""

from __future__ import annotations

from doc_pages import DOCS

from tui.actions import ACTIONS, Action, key_label


def row_of(action: Action) -> str:
    keys = " ".join(f"`{key_label(key)}`" for key in action.keys)
    return f"| {keys} | `{action.id}` | {', '.join(sorted(action.pages)) or 'everywhere'} | {action.help} |"


def test_all_keys_are_in_the_table_in_their_order() -> None:
    _, _, section = (DOCS / "guides" / "the-dashboard.md").read_text("utf-8").partition("\n## All keys\n")
    _, *rows = (line for line in section.splitlines() if line.startswith("| "))
    assert rows == [row_of(action) for action in ACTIONS]
