"""Copies and exports: the row, the column, the view, the screen, and the command that shows the same."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from engine.common.model import TopicPartition
from tui.dialogs.menu import Choice, MenuDialog
from tui.drawing.cells import Column
from tui.operations.operation import command_text
from tui.screen.page_screen import PageScreen


def write_new(path: Path, text: str) -> None:
    """Write a new file.

    Raises:
        OSError: it exists, or cannot be written completely; then no part of it stays.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise


class Saving:
    """Writes what the main screen shows to the clipboard and to files."""

    def __init__(self, screen: PageScreen) -> None:
        self._screen = screen

    # Copying

    def ask_what_to_copy(self) -> None:
        has_rows = self._screen.location.page != "overview" and bool(self._screen.model.shown)
        why_not = "" if has_rows else "there is no row"
        choices = [
            Choice("command", f"the command: {self.command()}"),
            Choice("name", "the name of the row", why_not),
            Choice("row", "the row as JSON", why_not),
            Choice("view", "all rows in sight as CSV", why_not),
        ]
        self._screen.ask(
            MenuDialog("Copy", choices), lambda choice: self._screen.app.copy_to_clipboard(self.text_of(choice))
        )

    def text_of(self, choice: str) -> str:
        model = self._screen.model
        match choice:
            case "command":
                return self.command()
            case "name":
                return str(model.cursor_key)
            case "row":
                return as_json(model.rows.columns, [model.cursor_item])
        return as_csv(model.rows.columns, model.shown)

    def command(self) -> str:
        screen = self._screen
        items: list[Any] = [] if screen.location.page == "overview" else screen.model.chosen
        words = screen.pages[screen.location.page].command(screen.view, items)
        return command_text(words, screen.dashboard.session.target) if words else "klamm top"

    # Files

    def ask_what_to_export(self) -> None:
        why_not = "" if self._screen.location.page != "overview" else "the overview has no rows"
        choices = [
            Choice("csv", "the rows in sight as CSV", why_not),
            Choice("json", "the rows in sight as JSON", why_not),
            Choice("svg", "the screen as SVG"),
        ]
        # The menu closes first, so that the picture does not show it.
        self._screen.ask(MenuDialog("Export", choices), lambda kind: self._screen.call_after_refresh(self.export, kind))

    def export(self, kind: str) -> Path | None:
        """Write a file to the working folder; return its path, or None if that failed."""
        screen = self._screen
        now = datetime.now(UTC)
        path = screen.dashboard.session.folder / f"klamm-{screen.location.page}-{now:%Y%m%dT%H%M%S.%f}Z.{kind}"
        model = screen.model
        try:
            if kind == "svg":
                text = screen.app.export_screenshot(title="klamm top")
            else:
                text = (as_csv if kind == "csv" else as_json)(model.rows.columns, model.shown)
            write_new(path, text)
        except OSError as error:
            screen.tell(f"not written: {error}", is_error=True)
            return None
        screen.tell(f"written: {path}")
        return path


# A table written for other programs: CSV and JSON, exact values, all columns, the visible rows. Pure.


def as_csv(columns: Sequence[Column], items: Sequence[Any]) -> str:
    """Return a header and a line per row; what is not known is empty, lists have commas."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    writer.writerows([_csv_cell(_value(column.value(item))) for column in columns] for item in items)
    return out.getvalue()


def as_json(columns: Sequence[Column], items: Sequence[Any]) -> str:
    """Return a list of objects, one per row, with a key per column."""
    rows = [{column.name: _value(column.value(item)) for column in columns} for item in items]
    return json.dumps(rows, ensure_ascii=False, indent=2) + "\n"


def _value(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case TopicPartition():
            return str(value)
        case tuple() | list():
            return [_value(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def _csv_cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list():
            return ",".join(map(str, value))
    return str(value)


# Where a copied text goes: to the machine's own clipboard if a program for it is installed, and to the terminal's.
#
# A terminal takes it by OSC 52, also over SSH; some are configured not to, and none says whether it did.

NATIVE_LIMIT_S = 2.0
TERMINAL_BYTES_MAX = 74_994
"""The most that common terminals take in one OSC 52, before it is encoded."""


def native_command(environment: Mapping[str, str], platform: str = sys.platform) -> list[str] | None:
    """Return the program that writes this session's clipboard; None if there is none.

    Over SSH without a display, such a program would write the remote machine's clipboard, from which nobody pastes.
    """
    if platform == "darwin" and not environment.get("SSH_CONNECTION"):
        candidates = [["pbcopy"]]
    else:
        candidates = [["wl-copy"]] if environment.get("WAYLAND_DISPLAY") else []
        if environment.get("DISPLAY"):
            candidates += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    path = environment.get("PATH")
    return next((words for words in candidates if shutil.which(words[0], path=path)), None)


async def copy_natively(text: str, command: list[str], environment: Mapping[str, str]) -> str:
    """Have the program take the text; return why it failed, or an empty text."""
    quiet = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=quiet, stderr=quiet, env=dict(environment)
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror or error}"
    try:
        async with asyncio.timeout(NATIVE_LIMIT_S):
            await process.communicate(text.encode())
    except TimeoutError:
        return f"{command[0]} did not end within {NATIVE_LIMIT_S:g} s"
    finally:
        # Another copy may have come, or the dashboard ends.
        if process.returncode is None:
            process.kill()
            await process.wait()
    return "" if process.returncode == 0 else f"{command[0]} ended with {process.returncode}"


def copied_text(used: str, why_not: str, size_bytes: int) -> str:
    if used:
        return f"copied by {used}, and by the terminal (OSC 52)"
    if size_bytes > TERMINAL_BYTES_MAX:
        reason = "more than terminals take: ^s writes a file"
    else:
        reason = why_not or "if it takes that"
    return f"copied by the terminal (OSC 52): {reason}"
