"""No comprehension rebuilds a collection for each of its elements: with thousands of topics that would take seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKERS = {"set", "frozenset", "list", "tuple", "dict", "sorted"}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def made_anew(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the right-hand sides of ``in`` that a comprehension rebuilds each time from values that never change."""
    for comprehension in ast.walk(tree):
        if not isinstance(comprehension, COMPREHENSIONS):
            continue
        bound = {name for generator in comprehension.generators for name in names_in(generator.target)}
        for test in ast.walk(comprehension):
            if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In | ast.NotIn):
                right = test.comparators[0]
                if isinstance(right, ast.Call) and names_in(right.func) & MAKERS and not names_in(right) & bound:
                    yield right


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("[x for x in xs if x in set(names)]", True),
        ("{x: 1 for x in xs if x not in sorted(self.names)}", True),
        ("[x in list(ys) for x in xs]", True),
        ("[x for x in xs if x in names]", False),
        ("[x for x in xs if 1 in set(x.parts)]", False),
    ],
)
def test_the_search_finds_what_it_is_for(source: str, *, is_found: bool) -> None:
    assert bool(list(made_anew(ast.parse(source)))) is is_found


@pytest.mark.parametrize("package", ["cli", "engine", "plans", "tui"])
def test_no_comprehension_makes_a_collection_for_each_element(package: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for file in (ROOT / package).rglob("*.py")
        for call in made_anew(ast.parse(file.read_text("utf-8")))
    ]
    assert found == []
