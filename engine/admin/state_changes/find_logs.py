"""Finds the logs that files, folders and Kafka's ``--logs-regex`` name.

A folder means all files in it, however deep, that are called ``state-change.log``: rolled (``.2026-11-21-13``, ``.1``),
compressed, or with a broker before the name. A file that is named counts whatever its name is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.state_changes.log_input import STDIN

# Kafka 4.0's own configuration misspelt the name (KAFKA-19576).
_LOG_NAME = re.compile(r"(?:^|[-._])sta[tg]e-change\.log(?:$|[-._])")


def find_logs(paths: Iterable[Path], regex: str | None = None) -> list[Path]:
    """Return the logs meant, each once.

    If others are found, a path that does not exist, or a folder without logs, is returned as it is: opening it reports
    what is wrong.

    Raises:
        NotFound: no path exists, or no folder has a state-change log in it.
        BadRequest: nothing is named, or the regular expression is invalid.
    """
    found: list[Path] = []
    absent: dict[Path, NotFound] = {}
    for path in paths:
        try:
            found += _logs_at(path)
        except NotFound as error:
            absent[path] = error
    if regex is not None:
        found += _by_regex(regex)
    if absent and not found:
        raise next(iter(absent.values()))
    found += absent
    if not found:
        hint = Phrase("give files or folders: ", Operation.MERGE_STATE_CHANGES)
        raise BadRequest("no log was named", hint=hint)
    return list({_identity(path): path for path in reversed(found)}.values())[::-1]


def _logs_at(path: Path) -> list[Path]:
    if path == STDIN:
        return [path]
    if not path.exists() and not path.is_symlink():
        raise NotFound("no such file or folder", where=str(path))
    return _logs_below(path) if path.is_dir() else [path]


def _logs_below(folder: Path) -> list[Path]:
    # ``Path`` itself can walk only since Python 3.12; paths of stores always can.
    walk = getattr(folder, "walk", partial(os.walk, folder))
    found = [
        type(folder)(parent) / name
        for parent, _, names in walk()
        for name in names
        if _LOG_NAME.search(name) is not None
    ]
    if not found:
        hint = "in a folder, klamm looks for state-change.log; name other files one by one"
        raise NotFound("no state-change log in the folder", where=str(folder), hint=hint)
    return sorted(found)


def _by_regex(text: str) -> list[Path]:
    """Kafka's rule: the folder is literal, the rest need match only a part of the file's name."""
    folder = Path(text).parent
    try:
        pattern = re.compile(Path(text).name)
    except re.error as error:
        raise BadRequest(f"not a regular expression: {error}", where=text) from None
    if not folder.is_dir():
        raise NotFound("no such folder", where=str(folder))
    found = sorted(path for path in folder.iterdir() if path.is_file() and pattern.search(path.name) is not None)
    if not found:
        raise NotFound("no file's name matches", where=text)
    return found


def _identity(path: Path) -> str:
    return str(path) if path == STDIN else os.path.realpath(path)
