"""The output formats, and which one is meant when none is named."""

from __future__ import annotations

from enum import StrEnum


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
