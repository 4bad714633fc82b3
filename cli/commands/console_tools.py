"""Options that only Kafka's console consumer and producer have: their clients' settings, and properties of lines.

Old scripts use them. They are hidden options of ``klamm consume`` and ``klamm produce``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from typer._click.exceptions import UsageError

from cli.framework.invocation import Invocation

if TYPE_CHECKING:
    from engine.admin.records.lines import LineFormat

_CONNECT = ("security.", "sasl.", "ssl.")
_BEYOND_US = frozenset(
    ("group.instance.id", "group.protocol", "interceptor.classes", "partitioner.class", "transactional.id")
)
"""They would change what is read or sent, and klamm's client lacks them."""
_LINE_READERS = ("LineMessageReader", "ConsoleProducer$LineMessageReader")
_LINE_PROPERTIES = {
    "parse.key": "false",
    "parse.headers": "false",
    "ignore.error": "false",
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
}
"""With Kafka's defaults; ``null.marker`` has none."""


def pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Return the properties of an option that is given once for each."""
    split = [text.partition("=") for text in texts or ()]
    for name, equals, _ in split:
        if not equals:
            raise UsageError(f"{option} must be NAME=VALUE, not {name!r}")
    return {name: value for name, _, value in split}


def file_pairs(path: Path | None) -> Mapping[str, str]:
    from engine.admin.cluster.client_properties import load_client_properties

    return {} if path is None else load_client_properties(path).entries


def client_settings(
    invocation: Invocation, option: str, file: Path | None, texts: Sequence[str] | None
) -> Mapping[str, str]:
    """Return the settings of the Java client that the tool would start; ``texts`` win over ``file``.

    The file also says how to connect. Settings that make a client faster or slower have no effect here.
    """
    given = pairs(option, texts)
    for name in given:
        if name.startswith(_CONNECT):
            raise UsageError(f"{option} {name}: what it takes to connect is for a file: --command-config FILE")
        if name in _BEYOND_US:
            raise UsageError(f"{option} {name}: klamm's client has no such setting; use Kafka's own tool")
    if given:
        from engine.admin.cluster.client_properties import unknown_keys

        for name, near in unknown_keys(given).items():
            invocation.talk.warn(f"{option} {name}: no client has this setting" + (f"; {near}?" if near else ""))
    if file is None:
        return given
    if invocation.target_options.command_config is None:
        invocation.target_options = replace(invocation.target_options, command_config=str(file))
    of_file = file_pairs(file)
    for name in sorted(_BEYOND_US & set(of_file)):
        invocation.talk.warn(f"{file}: klamm's client has no {name}, and goes on without it")
    return {**of_file, **given}


def group_of(settings: Mapping[str, str], group: str | None) -> str | None:
    """Return the group to join: that of ``--group`` or of ``group.id``, which must not differ."""
    named = settings.get("group.id") or group
    if group is not None and named != group:
        raise UsageError(f"--group {group} and group.id={named} differ")
    return named


def begins_at_oldest(settings: Mapping[str, str], *, from_beginning: bool) -> bool:
    """Return whether ``--from-beginning`` or ``auto.offset.reset`` asks for the oldest record."""
    reset = settings.get("auto.offset.reset", "earliest" if from_beginning else "latest")
    if reset not in ("earliest", "latest"):
        raise UsageError(f"auto.offset.reset must be earliest or latest, not {reset!r}")
    if from_beginning and reset == "latest":
        raise UsageError("--from-beginning and auto.offset.reset=latest exclude each other")
    return reset == "earliest"


def line_format(reader: str | None, properties: Mapping[str, str]) -> LineFormat:
    """Return how Kafka's LineMessageReader splits a line with these properties."""
    from engine.admin.records.lines import LineFormat

    if reader is not None and reader.rpartition(".")[2] not in _LINE_READERS:
        raise UsageError(f"--line-reader {reader}: klamm loads no Java classes; it splits lines as LineMessageReader")
    unknown = sorted(set(properties) - {*_LINE_PROPERTIES, "null.marker", "topic"})
    if unknown:
        known = ", ".join((*_LINE_PROPERTIES, "null.marker"))
        raise UsageError(f"--property: kafka-console-producer has no {', '.join(unknown)}; it has {known}")
    chosen = {**_LINE_PROPERTIES, **properties}
    for name in ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator"):
        if not chosen[name]:
            raise UsageError(f"--property {name} is empty")
    marker = properties.get("null.marker")
    return LineFormat(
        chosen["key.separator"].encode() if _is_true(chosen["parse.key"]) else None,
        _is_true(chosen["parse.headers"]),
        None if marker is None else marker.encode(),
        headers_end=chosen["headers.delimiter"].encode(),
        header_separator=chosen["headers.separator"].encode(),
        header_name_end=chosen["headers.key.separator"].encode(),
        takes_all=_is_true(chosen["ignore.error"]),
    )


def _is_true(text: str) -> bool:
    """Return what the tools take for true; anything else is false."""
    return text.strip().lower() == "true"
