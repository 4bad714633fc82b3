"""What the streams are (a terminal or not, how wide, with or without colour), and the output format that follows."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from enum import StrEnum
from typing import TextIO


class OutputFormat(StrEnum):
    """What stdout carries."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    YAML = "yaml"
    PLAIN = "plain"
    MARKDOWN = "markdown"
    """What a person sees, as GitHub's tables; not for commands that write as they go."""
    PROMETHEUS = "prometheus"
    """Samples for a scraper; few commands have them."""
    KAFKA = "kafka"
    """What Kafka's tool prints, byte for byte: the default under its name. Other reports have their usual format."""

    @property
    def is_json(self) -> bool:
        """Errors are JSON too."""
        return self in (OutputFormat.JSON, OutputFormat.JSONL)


def default_format(*, is_terminal: bool) -> OutputFormat:
    """A table for eyes, tab-separated values for a pipe."""
    return OutputFormat.TABLE if is_terminal else OutputFormat.PLAIN


_WIDTH_WITHOUT_TERMINAL = 1000


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal; a closed one is not."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def has_colour(stream: TextIO) -> bool:
    """Colour goes to terminals only, and never against NO_COLOR or to a dumb terminal."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def can_show_blocks(stream: TextIO) -> bool:
    """Whether bars may be drawn with blocks: on a terminal that knows Unicode."""
    encoding = (getattr(stream, "encoding", None) or "").lower()
    return is_terminal(stream) and os.environ.get("TERM") != "dumb" and encoding.startswith("utf")


@dataclass(frozen=True, slots=True)
class TerminalView:
    """Width and colour for a stream. COLUMNS wins; a file or pipe without it is as wide as the table."""

    width: int
    has_colour: bool

    @staticmethod
    def of(stream: TextIO) -> TerminalView:
        columns = os.environ.get("COLUMNS", "")
        if columns.isdigit() and int(columns) > 0:
            width = int(columns)
        elif is_terminal(stream):
            width = shutil.get_terminal_size().columns
        else:
            width = _WIDTH_WITHOUT_TERMINAL
        return TerminalView(width, has_colour(stream))
