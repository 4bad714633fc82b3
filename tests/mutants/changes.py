"""The mutants of a module: each changes one thing in one of its functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent

_OPPOSITE: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


_LOGS = re.compile(
    r"(controller_log\(.*?\)|self\._log|changes|self\._changes)\.(trace|debug|info|warning|error)\(|(self\.)?_(log|trace)_\w+\("
)
"""Calls that write to a log of the controller, besides those by ``logger``."""

_LOGGING_FUNCTION = re.compile("_(log|trace)_")
"""The beginning of the names of functions that do nothing but log."""


class Mutant(NamedTuple):
    """One change: its function, the text before and after, and the whole module with it."""

    number: int
    module: str
    function: str
    line: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.module, self.function, self.before, self.after

    def __str__(self) -> str:
        return f"{self.module}:{self.line} in {self.function}: {self.before}  →  {self.after}"


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module: changed comparisons, conditions, sums and numbers, and removed calls."""
    tree = ast.parse((ROOT / module).read_text())
    for number, (function, line, before, after) in enumerate(_all_changes(tree)):
        yield Mutant(number, module, function, line, before, after, ast.unparse(tree))


def keys_of(module: str) -> set[tuple[str, str, str, str]]:
    """Return the keys of a module's mutants, without the cost of their sources."""
    tree = ast.parse((ROOT / module).read_text())
    return {(module, function, before, after) for function, _, before, after in _all_changes(tree)}


def _all_changes(tree: ast.Module) -> Iterator[tuple[str, int, str, str]]:
    """Make each change in turn in the tree, yield its function, line, text before and text after, and undo it."""
    seen: set[ast.stmt] = set()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        if _LOGGING_FUNCTION.match(function.name):
            continue
        for statement in [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node not in seen]:
            seen.add(statement)
            if not _only_tells(statement):
                for before, after in _changes(statement):
                    yield function.name, statement.lineno, before, after


def _only_tells(statement: ast.stmt) -> bool:
    """Return whether a statement documents, logs or raises: its words protect nothing."""
    if isinstance(statement, ast.Raise | ast.FunctionDef | ast.AsyncFunctionDef):
        return True
    text = ast.unparse(statement)
    if isinstance(statement, ast.If):
        is_level = re.search(r"(_log|changes)\.is_(debug|trace)_enabled", text.partition("\n")[0]) is not None
        return is_level or all(_logs(part) for part in (*statement.body, *statement.orelse))
    return _logs(statement)


def _logs(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return _only_tells(statement)
    text = ast.unparse(statement)
    return isinstance(statement, ast.Expr) and (
        text.startswith(("logger.", "'", '"')) or ".state_change_log." in text or _LOGS.match(text) is not None
    )


def _changes(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """Make each change of one statement in turn in the tree, yield the text before and after, and undo it."""
    before = _head(statement)
    for node in _own_nodes(statement):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITE:
            kept = node.ops[0]
            node.ops[0] = _OPPOSITE[type(kept)]()
            yield before, _head(statement)
            node.ops[0] = kept
        elif isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and type(node.op) in _OPPOSITE:
            operator = node.op
            node.op = _OPPOSITE[type(operator)]()
            yield before, _head(statement)
            node.op = operator
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
            value = node.value
            node.value = not value if isinstance(value, bool) else value + 1
            yield before, _head(statement)
            node.value = value
    if isinstance(statement, ast.If | ast.While) and not isinstance(statement.test, ast.Compare):
        test = statement.test
        statement.test = ast.UnaryOp(ast.Not(), test)
        yield before, _head(statement)
        statement.test = test
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        statement.value = ast.Constant(...)
        yield before, "left out"
        statement.value = call


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, without the statements in its body, which are visited themselves."""
    yield statement
    waiting = list(ast.iter_child_nodes(statement))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield node
            waiting += ast.iter_child_nodes(node)


def _head(statement: ast.stmt) -> str:
    return ast.unparse(statement).partition("\n")[0]
