"""``keys.toml``: other keys for actions. Each mistake is reported with its line; a file with mistakes changes nothing.

[keys]
"rows.filter" = "f"
"topic.delete" = ["D", "ctrl+d"]
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.admin.cluster.profiles import user_folder
from tui.actions import PAGES, Registry, key_label, key_name

_KEY = re.compile(r"(ctrl\+|shift\+|alt\+)*([a-z]+[a-z_0-9]*|[A-Z]|[0-9])")
_TAKEN = frozenset({"up", "down", "home", "end", "pageup", "pagedown", "tab", "shift+tab", "ctrl+c"})


@dataclass(frozen=True, slots=True)
class KeyProblem:
    """What is wrong in a key file, and where."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def key_file_path(environment: Mapping[str, str]) -> Path:
    """Return where ``keys.toml`` is looked for, whether it exists or not."""
    return user_folder(environment, "XDG_CONFIG_HOME", ".config") / "keys.toml"


def load_keys(path: Path, registry: Registry) -> tuple[Registry, list[KeyProblem]]:
    """Return the registry with the file's keys, and what is wrong; with a problem, the registry as it was."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return registry, []
    except (OSError, UnicodeDecodeError) as error:
        return registry, [KeyProblem(path, 1, f"cannot be read: {error}")]
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return registry, [KeyProblem(path, _line_of_error(error), f"not TOML: {error}")]
    return _checked(path, text.splitlines(), document, registry)


def _checked(
    path: Path, lines: list[str], document: dict[str, Any], registry: Registry
) -> tuple[Registry, list[KeyProblem]]:
    problems = [
        KeyProblem(path, _line_with(lines, name), f"unknown table {name!r}: keys stand under [keys]")
        for name in document
        if name != "keys"
    ]
    entries = document.get("keys", {})
    if not isinstance(entries, dict):
        return registry, [KeyProblem(path, _line_with(lines, "keys"), "keys must be a table: [keys]")]
    known = {action.id for action in registry.actions}
    bound: dict[str, tuple[str, ...]] = {}
    for name, value in _flat(entries):
        line = _line_with(lines, name)
        keys = _keys_of(value)
        if name not in known:
            problems.append(KeyProblem(path, line, f"no action is called {name!r}{_alike(name, known)}"))
        elif keys is None:
            problems.append(KeyProblem(path, line, f"{name}: write a key, or a list of keys"))
        else:
            problems += [KeyProblem(path, line, f"{name}: {why}") for key in keys if (why := _refusal(key))]
            bound[name] = keys
    problems += _conflicts(path, lines, registry.rebound(bound), bound)
    return (registry, problems) if problems else (registry.rebound(bound), [])


def _flat(entries: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return names with their values; an unquoted ``rows.filter`` is a table in TOML."""
    found: list[tuple[str, Any]] = []
    for name, value in entries.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return found


def _keys_of(value: object) -> tuple[str, ...] | None:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        return None
    return tuple(key_name(text) for text in texts)


def _refusal(key: str) -> str | None:
    if not _KEY.fullmatch(key):
        return f"not a key: {key!r}"
    if key in _TAKEN:
        return f"{key} is taken: it moves the cursor or ends the program"
    return None


def _conflicts(
    path: Path, lines: list[str], registry: Registry, bound: Mapping[str, tuple[str, ...]]
) -> list[KeyProblem]:
    """Return a problem for each key of the file that another action has on the same screen."""
    problems, told = [], set()
    for page, _, _ in PAGES:
        owners: dict[str, str] = {}
        for action in registry.on_page(page):
            for key in action.keys:
                other = owners.setdefault(key, action.id)
                if other == action.id or not {other, action.id} & set(bound) or (key, other, action.id) in told:
                    continue
                told.add((key, other, action.id))
                mine = action.id if action.id in bound else other
                theirs = other if mine == action.id else action.id
                problems.append(
                    KeyProblem(path, _line_with(lines, mine), f"{key_label(key)} is the key of {theirs} too")
                )
    return problems


def _alike(name: str, known: set[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    return f": did you mean {close[0]!r}?" if close else ""


def _line_with(lines: list[str], name: str) -> int:
    """Return the first line that names it; where it is a table's part, the line with its last word."""
    for wanted in (name, name.rpartition(".")[2]):
        for number, line in enumerate(lines, 1):
            if wanted in line.partition("#")[0]:
                return number
    return 1


def _line_of_error(error: tomllib.TOMLDecodeError) -> int:
    found = re.search(r"at line (\d+)", str(error))
    return int(found[1]) if found else 1
