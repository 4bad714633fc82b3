"""Copies and exports: the row, the column, the view, the screen, and the command that shows the same."""

from __future__ import annotations

import shlex
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tui.dialogs.menu import Choice, MenuDialog
from tui.export import as_csv, as_json
from tui.main_view import MainView
from tui.operations.operation import command_text


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

    def __init__(self, screen: MainView) -> None:
        self._screen = screen

    # Copying

    def ask_what_to_copy(self) -> None:
        """Let a person choose."""
        has_rows = self._screen.location.page != "overview" and bool(self._screen.model.shown)
        why_not = "" if has_rows else "there is no row"
        choices = [
            Choice("command", f"the command: {self.command()}"),
            Choice("name", "the name of the row", why_not),
            Choice("row", "the row as JSON", why_not),
            Choice("view", "all rows in sight as CSV", why_not),
        ]
        self._screen.app.push_screen(MenuDialog("Copy", choices), self._copy)

    def _copy(self, choice: str | None) -> None:
        if choice is not None:
            self._screen.app.copy_to_clipboard(self.text_of(choice))

    def text_of(self, choice: str) -> str:
        """Return what a choice of the menu copies."""
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
        """Return the command that shows the same."""
        screen = self._screen
        items: list[Any] = [] if screen.location.page == "overview" else screen.model.chosen
        words = screen.page_command(items)
        if not words:
            return "klamm top"
        target = screen.dashboard.session.target
        return shlex.join(["klamm", *words]) if target is None else command_text(words, target)

    # Files

    def ask_what_to_export(self) -> None:
        """Let a person choose."""
        why_not = "" if self._screen.location.page != "overview" else "the overview has no rows"
        choices = [
            Choice("csv", "the rows in sight as CSV", why_not),
            Choice("json", "the rows in sight as JSON", why_not),
            Choice("svg", "the screen as SVG"),
        ]
        self._screen.app.push_screen(MenuDialog("Export", choices), self._export)

    def _export(self, kind: str | None) -> None:
        if kind is None:
            return
        # The menu closes first, so that the picture does not show it.
        self._screen.call_after_refresh(self.export, kind)

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

    def frame_was_drawn(self) -> None:
        """If a picture was requested at the start, make it once everything was read or no frame follows, and end."""
        app = self._screen.dashboard
        playback = app.session.feed.playback
        is_last = playback is not None and app.board.frame is not None and playback.position + 1 >= playback.count
        fleet = app.session.fleet
        is_whole = app.board.was_read_whole if fleet is None else fleet.is_settled
        if app.session.screenshot is not None and (is_whole or is_last):
            self._screen.call_after_refresh(app.finish_screenshot, 0 if app.has_answer else 3)
