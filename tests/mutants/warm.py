"""A pytest plugin that tries mutants in forks of one process that has already imported and collected everything.

First a fork runs all tests and notes which lines of the module each of them reaches. Then each mutant gets a fork whose
functions have the mutant's code, and which runs only the tests that reach the line, the quickest first. This is not the
final result: a mutant that no fork notices must run again in a process of its own, with all tests.
"""

from __future__ import annotations

import ast
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.mutants.changes import ROOT, mutants_of

TASK = "KLAMM_MUTANTS"
"""The variable that names the task: a JSON file with the module, the numbers of its mutants, and a path for results."""

_PR_SET_PDEATHSIG = 1
_REACHED = "_mutants_reached"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """Fork for the survey and for each mutant; in a fork, leave the tests to pytest."""
    task = json.loads(Path(os.environ[TASK]).read_text())
    forks = _Forks(session, task["module"], Path(task["results"]))
    if forks.survey():
        return None
    mutants = list(mutants_of(task["module"]))
    for number in task["mutants"]:
        if forks.try_mutant(number, mutants[number].line, mutants[number].source):
            return None
    return True


class _Forks:
    def __init__(self, session: pytest.Session, module: str, results: Path) -> None:
        self._session = session
        self._path = ROOT / module
        self._text = self._path.read_text()
        self._module = importlib.import_module(module.removesuffix(".py").replace("/", "."))
        self._results = results
        self._seconds: list[float] = []
        self._tests_at: dict[int, list[int]] = {}

    def survey(self) -> bool:
        """Learn which tests reach which lines; return True in the fork that must run them."""
        notes = self._results.with_suffix(".survey")
        passed = _in_fork(600)
        if passed is None:
            reached: set[int] = set()
            vars(self._module)[_REACHED] = reached.add
            for function, code in _new_codes(self._path, self._text, _noting(self._text)):
                function.__code__ = code
            self._session.config.pluginmanager.register(_Notes(reached, notes))
            return True
        noted = json.loads(notes.read_text()) if passed else []
        self._seconds = [seconds for seconds, _ in noted]
        tests_at: defaultdict[int, list[int]] = defaultdict(list)
        for number in sorted(range(len(noted)), key=self._seconds.__getitem__):
            for line in noted[number][1]:
                tests_at[line].append(number)
        self._tests_at = dict(tests_at)
        self._say({"passed": passed, "seconds": sum(self._seconds)})
        return False

    def try_mutant(self, number: int, line: int, source: str) -> bool:
        """Run the tests that reach a mutant's line; return True in the fork that must run them."""
        chosen = self._tests_at.get(line, [])
        codes = _new_codes(self._path, self._text, source)
        survives: bool | None = True
        is_tried = bool(chosen and codes)
        if is_tried:
            self._path.write_text(source)  # For the processes that tests start.
            survives = _in_fork(20 + 4 * sum(self._seconds[test] for test in chosen))
            if survives is None:
                for function, code in codes:
                    function.__code__ = code
                self._session.items[:] = [self._session.items[test] for test in chosen]
                return True
            self._path.write_text(self._text)
        self._say({"mutant": number, "is_tried": is_tried, "is_noticed": not survives})
        return False

    def _say(self, result: dict[str, object]) -> None:
        with self._results.open("a") as file:
            file.write(json.dumps(result) + "\n")


class _Notes:
    """Notes how long each test took and which lines it reached."""

    def __init__(self, reached: set[int], file: Path) -> None:
        self._reached = reached
        self._file = file
        self._tests: list[tuple[float, list[int]]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self._reached.clear()
        begun = time.monotonic()
        result = yield
        self._tests.append((time.monotonic() - begun, sorted(self._reached)))
        return result

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._tests))


def _in_fork(limit_s: float) -> bool | None:
    """Fork: return None in the child, and in the parent whether the child ended well and in time."""
    process = os.fork()
    if process == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        return None
    end = os.pidfd_open(process)
    try:
        has_ended = bool(select.select([end], [], [], limit_s)[0])
        if not has_ended:
            os.killpg(process, signal.SIGKILL)
        return os.waitpid(process, 0)[1] == 0 and has_ended
    finally:
        os.close(end)


def _noting(text: str) -> str:
    """Return a module's text with a note before each statement in a function, made when the statement is reached."""
    tree = ast.parse(text)
    for node in [node for node in ast.walk(tree) if not isinstance(node, ast.Module)]:
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                setattr(
                    node, field, [each for statement in statements for each in (_note(statement.lineno), statement)]
                )
    return ast.unparse(ast.fix_missing_locations(tree))


def _note(line: int) -> ast.Expr:
    return ast.Expr(ast.Call(ast.Name(_REACHED, ast.Load()), [ast.Constant(line)], []))


def _new_codes(path: Path, old: str, new: str) -> list[tuple[FunctionType, CodeType]]:
    """Return each loaded function of a module with its code from the new text; nothing if the two do not match."""
    old_codes, new_codes = (list(_codes(compile(text, path, "exec"))) for text in (old, new))
    if [code.co_qualname for code in old_codes] != [code.co_qualname for code in new_codes]:
        return []
    replacements = dict(zip(map(_place, old_codes), new_codes, strict=True))
    # What the tests' conftest has frozen, the collector does not know.
    gc.unfreeze()
    loaded = [
        value
        for value in gc.get_objects()
        if isinstance(value, FunctionType) and value.__code__.co_filename == str(path)
    ]
    gc.freeze()
    codes = [(function, replacements[_place(function.__code__)]) for function in loaded]
    fit = all(function.__code__.co_freevars == code.co_freevars for function, code in codes)
    return codes if fit else []


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _place(code: CodeType) -> tuple[str, int, bytes]:
    return code.co_qualname, code.co_firstlineno, code.co_linetable
