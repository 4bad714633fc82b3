"""The dashboard words the planner's advice as fields and keys, never as a command or an option."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import plans
from plans.errors import BadOption, BadPlanFile, Infeasible, PlanError
from tui.operations.operation import failure_text
from tui.planning.opened_plan import read_plan_file
from tui.remedies import planner_words

TYPED = re.compile(r"\bklamm (plan|topics|reassign|brokers|cluster)\b|--[a-z]")


def planner_texts() -> list[str]:
    """Return each string in the planner that contains a command or an option. An f-string gets 5 for its values."""
    texts = []
    for path in sorted(Path(plans.__path__[0]).glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        whole = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        parts = {id(part) for node in whole for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                texts.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "5" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                texts.append(node.value)
    return [text for text in texts if TYPED.search(text) and "\n" not in text]


def test_no_command_and_no_option_of_the_planner_is_left() -> None:
    texts = planner_texts()
    assert len(texts) > 10
    assert [words for text in texts if TYPED.search(words := planner_words(text))] == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            Infeasible("the broker cannot be emptied", hint="wait until klamm reassign list is empty"),
            "the broker cannot be emptied — wait until screen Reassignments (6) is empty",
        ),
        (
            BadOption("--aim bytes needs sizes", hint="allow more with --tolerance 12.5, or remove --aim bytes"),
            "bytes in Level what needs sizes — allow more with 12.5 in Tolerance, or take bytes out of Level what",
        ),
        (BadPlanFile("no plan"), "no plan"),
    ],
)
def test_a_plan_that_fails_advises_fields_and_keys(error: PlanError, expected: str) -> None:
    assert failure_text(error) == expected


def test_a_file_that_is_no_plan_advises_keys(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("[]")
    assert read_plan_file(path).error.endswith("make it with N and save it with w, and do not edit it by hand")
