"""The options that many commands share, declared once. The order here is the order in every help page."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer._click.exceptions import UsageError

from cli.framework.completing import complete_profiles, one_of
from cli.framework.invocation import Invocation, TargetOptions
from cli.framework.talk import Talk, Verbosity
from cli.output.format import OutputFormat, default_format, is_terminal

CLUSTER_PANEL = "Cluster"
COMMON_PANEL = "Common options"

_ZOOKEEPER = typer.Option(
    "--zookeeper",
    metavar="HOST:PORT[,…][/chroot]",
    help="Read the znodes there; without --bootstrap-server also change them.  [env: KLAMM_ZOOKEEPER]",
    rich_help_panel=CLUSTER_PANEL,
)
_BOOTSTRAP = typer.Option(
    "--bootstrap-server",
    "-b",
    metavar="HOST:PORT[,…]",
    help="Ask brokers; klamm finds the others through these.  [env: KLAMM_BOOTSTRAP_SERVER]",
    rich_help_panel=CLUSTER_PANEL,
)
_CLUSTER = typer.Option(
    "--cluster",
    metavar="NAME",
    help="A profile of clusters.toml.  [env: KLAMM_CLUSTER]",
    rich_help_panel=CLUSTER_PANEL,
    autocompletion=complete_profiles,
)
_SNAPSHOT = typer.Option(
    "--snapshot",
    metavar="FILE",
    allow_dash=True,
    help="Read offline; - is stdin.  [env: KLAMM_SNAPSHOT]",
    rich_help_panel=CLUSTER_PANEL,
)
_COMMAND_CONFIG = typer.Option(
    "--command-config",
    metavar="FILE",
    allow_dash=True,
    help="A Kafka client's properties file (TLS, SASL); - is stdin.  [env: KLAMM_COMMAND_CONFIG]",
    rich_help_panel=CLUSTER_PANEL,
)
_JAAS_CONFIG = typer.Option(
    "--jaas-config",
    metavar="FILE",
    help="A JAAS file: KafkaClient for brokers, Client for ZooKeeper.  [default: the one in KAFKA_OPTS]",
    rich_help_panel=CLUSTER_PANEL,
)
_ZK_TLS_CONFIG = typer.Option(
    "--zk-tls-config-file",
    metavar="FILE",
    help="Properties zookeeper.ssl.*, for TLS with ZooKeeper, unless --command-config has them.",
    rich_help_panel=CLUSTER_PANEL,
)
_VIA = typer.Option(
    "--via",
    metavar="zookeeper|wire",
    help="Ask and change through this side only.",
    rich_help_panel=CLUSTER_PANEL,
    autocompletion=one_of("zookeeper", "wire"),
)
_DRY_RUN = typer.Option("--dry-run", help="Say what would be done; change nothing.", rich_help_panel=COMMON_PANEL)
_YES = typer.Option("--yes", "-y", help="Do not ask.", rich_help_panel=COMMON_PANEL)
_TIMEOUT = typer.Option(
    "--timeout", metavar="SECONDS", help="Limit of every wait.  [default: 30]", rich_help_panel=COMMON_PANEL
)
_DEADLINE = typer.Option(
    "--timeout", metavar="SECONDS", help="Deadline of the whole run.  [default: none]", rich_help_panel=COMMON_PANEL
)
_FORMATS = tuple(form for form in OutputFormat if form not in (OutputFormat.PROMETHEUS, OutputFormat.KAFKA))
_OUTPUT = typer.Option(
    "--output",
    "-o",
    metavar="FORMAT",
    help="table, json, jsonl, csv, yaml or plain.  [default: table on a terminal, plain in a pipe]",
    rich_help_panel=COMMON_PANEL,
    autocompletion=one_of(*_FORMATS),
)
_OUTPUT_OF_METRICS = typer.Option(
    "--output",
    "-o",
    metavar="FORMAT",
    help="table, json, jsonl, csv, yaml, plain, markdown, prometheus.  [default: table on a terminal, else plain]",
    rich_help_panel=COMMON_PANEL,
    autocompletion=one_of(*OutputFormat),
)
_QUIET = typer.Option("--quiet", "-q", help="Print data and errors only.", rich_help_panel=COMMON_PANEL)
_VERBOSE = typer.Option("--verbose", "-v", help="Show what klamm asks of whom.", rich_help_panel=COMMON_PANEL)


class Asks(StrEnum):
    """What can answer a command, or carry it out."""

    EITHER = "either"
    """Brokers or ZooKeeper, whichever is named; a reading command also a snapshot."""
    CLUSTER = "cluster"
    """As EITHER, but no snapshot has the answer."""
    BROKERS = "wire"
    ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True)
class Needs:
    """Which of the shared options a command takes."""

    cluster: bool = False
    changes: bool = False
    asks: Asks = Asks.EITHER
    bounded: bool = True
    """--timeout bounds the whole command; a stream bounds each of its waits itself."""
    has_deadline: bool = False
    """--timeout is the deadline of the whole command, which has none unless it is given."""
    metrics: bool = False
    """It takes -o prometheus."""
    streams: bool = False
    """It writes as it goes, and has no final report to draw as a whole."""
    kafka: bool = False
    """Under the name of Kafka's tool, or with -o kafka, it prints what that tool prints."""


NEEDS_NOTHING = Needs()


def shared_parameters(needs: Needs) -> list[inspect.Parameter]:
    """Return the shared options of a command as parameters of its callback."""
    parameters: list[inspect.Parameter] = []

    def add(name: str, kind: Any, option: Any, default: object) -> None:
        annotation = Annotated[kind, option]
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )

    if needs.cluster:
        for name, option in (
            ("zookeeper", _ZOOKEEPER),
            ("bootstrap_server", _BOOTSTRAP),
            ("cluster", _CLUSTER),
            ("snapshot", _SNAPSHOT),
            ("command_config", _COMMAND_CONFIG),
            ("jaas_config", _JAAS_CONFIG),
            ("zk_tls_config_file", _ZK_TLS_CONFIG),
            ("via", _VIA),
        ):
            add(name, str | None, option, None)
    if needs.changes:
        add("dry_run", bool, _DRY_RUN, False)
        add("yes", bool, _YES, False)
    add("timeout", float | None, _DEADLINE if needs.has_deadline else _TIMEOUT, None)
    add("output", str | None, _OUTPUT_OF_METRICS if needs.metrics else _OUTPUT, None)
    add("quiet", bool, _QUIET, False)
    add("verbose", bool, _VERBOSE, False)
    return parameters


def invocation_from(needs: Needs, values: Mapping[str, Any]) -> Invocation:
    """Return the run that the shared options ask for.

    Raises:
        UsageError: a value is not allowed.
    """
    import sys

    output = _output(values["output"], needs, is_tty=is_terminal(sys.stdout))
    if output is OutputFormat.PROMETHEUS and not needs.metrics:
        raise UsageError("--output prometheus is for commands that measure, such as klamm lag")
    if output is OutputFormat.KAFKA and not needs.kafka:
        raise UsageError("--output kafka is for commands that Kafka has a tool for")
    if output is OutputFormat.MARKDOWN and needs.streams:
        raise UsageError("--output markdown is for reports; this command writes as it goes: use csv or jsonl")
    if values["quiet"] and values["verbose"]:
        raise UsageError("--quiet and --verbose contradict each other")
    timeout = 30.0 if values["timeout"] is None else values["timeout"]
    if not timeout > 0:
        raise UsageError("--timeout must be a number of seconds above 0")
    verbosity = Verbosity.QUIET if values["quiet"] else Verbosity.VERBOSE if values["verbose"] else Verbosity.NORMAL
    if values.get("via") not in (None, "zookeeper", "wire"):
        raise UsageError(f"--via must be zookeeper or wire, not {values['via']!r}")
    return Invocation(
        output=output,
        talk=Talk(verbosity, is_json=output.is_json, is_terse=output is OutputFormat.KAFKA),
        timeout_s=timeout,
        has_timeout_given=values["timeout"] is not None,
        is_dry_run=bool(values.get("dry_run")),
        is_confirmed=bool(values.get("yes")),
        asks=needs.asks.value,
        target_options=TargetOptions.of(values),
    )


def _output(name: str | None, needs: Needs, *, is_tty: bool) -> OutputFormat:
    if name is None:
        return default_format(is_terminal=is_tty)
    try:
        return OutputFormat(name)
    except ValueError:
        special = {OutputFormat.PROMETHEUS: needs.metrics, OutputFormat.KAFKA: needs.kafka}
        known = ", ".join(output for output in OutputFormat if special.get(output, True))
        raise UsageError(f"--output must be one of {known}, not {name!r}") from None
