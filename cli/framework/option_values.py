"""Options that some commands share, and how klamm reads durations (units or seconds) and addresses to listen on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.completing import complete_topics

if TYPE_CHECKING:
    from engine.common.model import IsolationLevel

TopicTexts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        help="Names, or regular expressions that match whole names. All if you name none.",
        autocompletion=complete_topics,
    ),
]
NamedTopics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC", help="Names, or regular expressions that match whole names.", autocompletion=complete_topics
    ),
]
TopicOptions = Annotated[list[str] | None, typer.Option("--topic", hidden=True, autocompletion=complete_topics)]
VerifiedTopics = Annotated[
    list[str] | None,
    typer.Option("--topic", "--topics-include", metavar="REGEX", help="Names or patterns.  [default: all]"),
]
RollbackFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where to write the rollback.  [default: rollback-TIME.json]")
]
Checkpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoint",
        metavar="PLACE",
        help="A Spark checkpoint, a folder of them, a pattern or a URI; may be repeated.",
    ),
]
EventLogs = Annotated[
    list[str] | None,
    typer.Option(
        "--event-log", metavar="PLACE", help="Spark event logs, or files of klamm's listener; may be repeated."
    ),
]
StateChangeLogs = Annotated[
    list[str] | None,
    typer.Option(
        "--logs", metavar="FILE|FOLDER", help="State-change logs of brokers, or folders of them; may be repeated."
    ),
]
MetricsUrl = Annotated[
    str | None,
    typer.Option(
        "--metrics-url",
        metavar="URL",
        help="Where each broker serves its metrics: http://{host}:7071/metrics, http://{host}:8778/jolokia, "
        "jmx://{host}:9999 or jmxs://USER:${env:PASSWORD}@{host}:9999; {id} is its id.  "
        "[default: what the profile or the broker says]",
    ),
]


def seconds_option(name: str, text: str) -> float:
    """Return the seconds that an option means.

    Raises:
        UsageError: it is not a duration, or not above 0.
    """
    from engine.common.quantities import parse_duration_s

    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error
    if not seconds > 0:
        raise UsageError(f"{name} must be a time above 0")
    return seconds


def isolation_option(text: str) -> IsolationLevel:
    """Return the isolation level that --isolation means, in the words of klamm or of Kafka.

    Raises:
        UsageError: it is none.
    """
    from engine.common.model import IsolationLevel

    try:
        return IsolationLevel[text.replace("-", "_").upper()]
    except KeyError:
        raise UsageError(f"--isolation must be read-uncommitted or read-committed, not {text!r}") from None


def address_option(name: str, text: str) -> tuple[str, int]:
    """Return host and port of ``[HOST]:PORT``; without a host it is every address of this machine.

    Raises:
        UsageError: it is not an address.
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{name} must be [HOST]:PORT, not {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
