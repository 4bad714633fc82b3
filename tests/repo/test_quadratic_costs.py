"""Nothing takes the square of what it is given: with thousands of topics, or a long line, that would take seconds.

No comprehension rebuilds a collection for each of its elements. No regular expression has two repeats that can share
one run of characters: each way to share it is tried before the text is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("cli", "engine", "klamm", "plans", "tui")
MAKERS = {"set", "frozenset", "list", "tuple", "dict", "sorted"}
OWN_IN = re.compile(r"\bfor [^:\n]+? in\b")
"""The ``in`` of a loop or comprehension itself."""
IN_MAKER = re.compile(rf"\bin\s+(?:{'|'.join(MAKERS)})\b")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
CHARACTERS = frozenset(map(chr, range(0x180)))
REPEATS = (kinds.MAX_REPEAT, kinds.MIN_REPEAT)
SINGLE = (kinds.LITERAL, kinds.NOT_LITERAL, kinds.ANY, kinds.IN)
MANY = 250
"""A repeat of at most so many characters is short. Names of topics have 249."""
HARMLESS = {
    r"(.+)PerSec\w*": "the broker's own metrics",
    r"(.+)Percent\w*": "the broker's own metrics",
    r"^(?P<name>\S+-\S+)\.(?P<unique>[^\s.]+)(?P<suffix>-delete|-future|-stray)$": "names of folders",
    r"(ctrl\+|shift\+|alt\+)*([a-z]+[a-z_0-9]*|[A-Z]|[0-9])": "names of keys",
    r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)": "no slash in an address: only the last :// can be meant",
    r"(Leader|Follower) \S+ (?:with topic id \S+ )?starts at leader epoch (-?\d{1,10})"
    r"(?:.*?with partition epoch (-?\d{1,10}))?(?:.*?ISR \[([\d, ]*)\])?": "both endings may be missing",
}
"""Expressions that see no long text, or try no way twice, and why."""


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def made_anew(source: str) -> Iterator[ast.Call]:
    """Yield the right-hand sides of ``in`` that a comprehension rebuilds each time from values that never change.

    Parsing takes most of the time, and hardly any file has such an ``in`` at all.
    """
    tree = ast.parse(source) if IN_MAKER.search(OWN_IN.sub("", source)) else ast.Module([], [])
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
        ("[\n    x\n    for x in sorted(xs)\n    if x\n    in set(names)\n]", True),
        ("[x for x in xs if x in names]", False),
        ("[x for x in xs if 1 in set(x.parts)]", False),
    ],
)
def test_the_search_finds_what_it_is_for(source: str, *, is_found: bool) -> None:
    assert bool(list(made_anew(source))) is is_found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_comprehension_makes_a_collection_for_each_element(package: str) -> None:
    calls = [
        f"{file.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for file in (ROOT / package).rglob("*.py")
        for call in made_anew(file.read_text("utf-8"))
    ]
    assert calls == []


def characters_of(kind: Any, value: Any) -> frozenset[str]:
    """Return the characters that one item of an expression matches: a literal, a class, a group, a repeat."""
    if kind is kinds.LITERAL:
        return frozenset(chr(value))
    if kind is kinds.NOT_LITERAL:
        return CHARACTERS - {chr(value)}
    if kind is kinds.ANY:
        return CHARACTERS - {"\n"}
    if kind in (kinds.IN, kinds.CATEGORY, kinds.RANGE):
        tree = parser.SubPattern(parser.State(), [(kinds.IN, value if kind is kinds.IN else [(kind, value)])])
        return frozenset(filter(re._compiler.compile(tree).fullmatch, CHARACTERS))  # type: ignore[attr-defined]
    if kind in (*REPEATS, kinds.POSSESSIVE_REPEAT):
        return frozenset().union(*(characters_of(*each) for each in value[2]))
    if kind in (kinds.SUBPATTERN, kinds.ATOMIC_GROUP):
        return frozenset().union(*(characters_of(*each) for each in (value[3] if kind is kinds.SUBPATTERN else value)))
    if kind is kinds.BRANCH:
        return frozenset().union(*(characters_of(*each) for way in value[1] for each in way))
    return frozenset() if kind in (kinds.AT, kinds.ASSERT, kinds.ASSERT_NOT) else CHARACTERS


def items_of(sequence: Sequence[Any]) -> Iterator[Any]:
    """Yield the items in their order, without groups around them."""
    for kind, value in sequence:
        if kind is kinds.SUBPATTERN:
            yield from items_of(value[3])
        else:
            yield kind, value


def shares_runs(sequence: Sequence[Any]) -> bool:
    """Return whether two repeats in a row can share a run of characters, or one repeat can with its own next round."""
    open_runs: list[frozenset[str]] = []
    items = list(items_of(sequence))
    for position, (kind, value) in enumerate(items):
        characters = characters_of(kind, value)
        is_optional = False
        if kind in REPEATS:
            fewest, most, body = value
            is_optional = not fewest
            if most > MANY and len(body) == 1 and body[0][0] in SINGLE:
                if any(run & characters for run in open_runs):
                    return True
                open_runs.append(characters)
                continue
            rounds = [*body, *body, *items[position + 1 :]] if most > MANY else body
            if shares_runs(rounds):
                return True
        elif kind is kinds.BRANCH and any(map(shares_runs, value[1])):
            return True
        if kind not in (kinds.AT, kinds.ASSERT, kinds.ASSERT_NOT) and not is_optional:
            open_runs = [run for run in open_runs if run & characters]
    return False


@pytest.mark.parametrize(
    ("pattern", "is_found"),
    [
        (r"(a+)+b", True),
        (r"(?:[^,]*,?)*;", True),
        (r"\s*=\s*(\S*)\s*,", True),
        (r"\{[^}]*:[^}]*\}", True),
        (r"\{[^}:]*:[^}]*\}", False),
        (r"\s*+=\s*+(\S*+)\s*+,", False),
        (r"(?:\w+\.)*\w+", False),
        (r"(?:\\.|[^\"\\])*", False),
        (r"-?\d+(?:\.\d+)? *", False),
    ],
)
def test_the_search_finds_repeats_that_share_a_run(pattern: str, *, is_found: bool) -> None:
    assert shares_runs(parser.parse(pattern)) is is_found


def test_no_regular_expression_tries_many_ways_to_share_a_run() -> None:
    patterns = {
        str(pattern): f"{file.relative_to(ROOT)}:{call.lineno}"
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if re.search(r"\bre\.", text := file.read_text("utf-8"))
        for call, pattern in expressions(ast.parse(text))
        if shares_runs(parser.parse(pattern))
    }
    assert patterns.keys() == HARMLESS.keys(), {
        pattern: patterns[pattern] for pattern in patterns.keys() - HARMLESS.keys()
    }


def expressions(tree: ast.AST) -> Iterator[tuple[ast.Call, str | bytes]]:
    """Yield the calls of functions of ``re`` whose pattern is a literal."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
            module, pattern = call.func.value, call.args[0]
            if isinstance(module, ast.Name) and module.id == "re" and isinstance(pattern, ast.Constant):
                yield call, pattern.value
