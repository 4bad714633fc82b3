"""``klamm top``: the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.exit_codes import ExitCode
from cli.framework.command import single_command
from cli.framework.completing import one_of
from cli.framework.failure import Failure
from cli.framework.invocation import Invocation, Stop
from cli.framework.option_values import Checkpoints, EventLogs, StateChangeLogs
from cli.framework.options import Asks, Needs
from cli.output.format import is_terminal

if TYPE_CHECKING:
    from engine.admin.cluster.target import ClusterTarget
    from tui.run import Wishes

SCREENS = (
    "overview", "brokers", "topics", "partitions", "groups", "reassignments", "plans", "timeline", "spark",
    "zookeeper", "logs",
)  # fmt: skip


@single_command(
    "top",
    needs=Needs(cluster=True, asks=Asks.CLUSTER, bounded=False),
    examples=(
        "klamm top",
        "klamm top --all",
        "klamm top --cluster prod --read-only --screen reassignments",
        "klamm top --refresh 2 --zookeeper 127.0.0.1:2181 --bootstrap-server 127.0.0.1:9092",
        "klamm top --screen brokers --screenshot brokers.svg",
        "klamm top --screen spark --checkpoint '/srv/spark/*/checkpoint'",
        "klamm top --logs /var/log/kafka",
        "klamm top --record last-night.rec < /dev/null",
        "klamm top --replay last-night.rec",
    ),
)
def command(
    invocation: Invocation,
    all_clusters: Annotated[
        bool, typer.Option("--all", help="Begin with a table of all clusters of your profiles.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Change nothing, whatever key you press.")] = False,
    screen: Annotated[
        str, typer.Option("--screen", metavar="NAME", help="The first screen.", autocompletion=one_of(*SCREENS))
    ] = "overview",
    refresh: Annotated[
        float, typer.Option("--refresh", metavar="SECONDS", help="Time between two frames: 0.5 to 10.")
    ] = 1.0,
    theme: Annotated[
        str | None,
        typer.Option("--theme", metavar="NAME", help="dark, light, contrast, monochrome, or one of your own."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Record what is shown; without a terminal, until Ctrl-C."),
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Play a recording back; no cluster is needed.")
    ] = None,
    screenshot: Annotated[
        Path | None, typer.Option("--screenshot", metavar="FILE.svg", help="Draw one frame into a file, and end.")
    ] = None,
    checkpoint: Checkpoints = None,
    event_log: EventLogs = None,
    logs: StateChangeLogs = None,
) -> int:
    """Watch a cluster live, and operate it.

    The first screen says whether the cluster is healthy, and if not, why. ? shows the keys of a screen, q quits. Before
    the dashboard changes the cluster, it shows what it would do and the command that does the same, and asks. If it
    cannot reach the cluster, it says who does not answer and keeps trying.

    --all shows how each cluster of your profiles is, and why; enter goes into one, esc comes back.

    Spark's queries come from checkpoints and event logs, a partition's history from the brokers' state-change logs.
    Name them here or in the cluster's profile; options here replace those of the profile.
    """
    import os

    from engine.common.collection import collector_paused

    _check(screen, refresh, screenshot)
    if replay is not None and record is not None:
        raise UsageError("--record and --replay contradict each other")
    if all_clusters:
        others = {"--record": record, "--replay": replay, "--checkpoint": checkpoint, "--event-log": event_log}
        _refuse_beside_all(invocation, others | {"--logs": logs})
    is_headless = record is not None and screenshot is None and not _has_terminal()
    target = None
    if replay is None and not all_clusters:
        target = _with_places(_target(invocation, is_read_only=read_only), checkpoint, event_log, logs)
    if screenshot is None and not is_headless:
        _refuse_without_terminal()
    with collector_paused():
        # What is loaded stays: to scan it again and again would take a tenth of the start.
        from tui.run import Wishes, run_dashboard, run_replay, theme_refusal

    if theme is not None and (why := theme_refusal(theme, os.environ)):
        raise UsageError(why)
    wishes = Wishes(
        page=screen,
        refresh_s=refresh,
        theme=theme,
        is_read_only=read_only,
        screenshot=screenshot,
        record=record,
        timeout_s=invocation.timeout_s,
    )
    if replay is not None:
        return run_replay(replay, wishes)
    if is_headless:
        assert target is not None
        return _record_headless(invocation, target, wishes)
    code = run_dashboard(target, wishes, jaas_config=invocation.target_options.jaas_config)
    if screenshot is not None and code == ExitCode.UNREACHABLE:
        message = "the cluster did not answer in time" if target is not None else "no cluster answered in time"
        where, hint = None if target is None else target.name, f"{screenshot} shows who did not answer"
        raise Stop(Failure(ExitCode.UNREACHABLE, "unreachable", message, where, hint))
    return code


def _record_headless(invocation: Invocation, target: ClusterTarget, wishes: Wishes) -> int:
    from tui.run import record_headless

    invocation.talk.say(f"recording {target.name} into {wishes.record}; Ctrl-C or TERM ends it")
    recorded, code = record_headless(target, wishes)
    if recorded is not None:
        invocation.talk.say(f"{recorded.frames} frames, {recorded.size_bytes} bytes, {recorded.seconds:.0f} s")
    return code


def _refuse_beside_all(invocation: Invocation, others: Mapping[str, object]) -> None:
    """Reject options for a single cluster beside ``--all``, and ``--all`` itself without profiles."""
    import os

    from engine.admin.cluster.profiles import load_profiles, profiles_path

    options = invocation.target_options
    named = {
        "--cluster": options.cluster, "--bootstrap-server": options.bootstrap_server, "--zookeeper": options.zookeeper,
        "--snapshot": options.snapshot, "--command-config": options.command_config, "--via": options.via,
        "--zk-tls-config-file": options.zk_tls_config_file,
    }  # fmt: skip
    for option, value in (named | dict(others)).items():
        if value:
            raise UsageError(f"--all and {option} contradict each other: it is about one cluster")
    profiles = load_profiles(profiles_path(os.environ))
    if not profiles.profiles:
        hint = "add one with: klamm profiles add NAME --bootstrap-server HOST:PORT"
        raise Stop(Failure(ExitCode.USAGE, "usage", "there are no profiles", str(profiles.path), hint))


def _check(screen: str, refresh: float, screenshot: Path | None) -> None:
    if screen not in SCREENS:
        raise UsageError(f"--screen must be one of {', '.join(SCREENS)}, not {screen!r}")
    if not 0.5 <= refresh <= 10:
        raise UsageError(f"--refresh must be 0.5 to 10 seconds, not {refresh:g}")
    if screenshot is not None and not screenshot.absolute().parent.is_dir():
        raise UsageError(f"--screenshot: there is no folder {screenshot.absolute().parent}")


def _has_terminal() -> bool:
    import os
    import sys

    return is_terminal(sys.stdin) and is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb"


def _refuse_without_terminal() -> None:
    if _has_terminal():
        return
    hint = "draw one frame with --screenshot FILE.svg, or record what happens with --record FILE"
    raise Stop(Failure(ExitCode.USAGE, "usage", "the dashboard needs a terminal", hint=hint))


def _target(invocation: Invocation, *, is_read_only: bool) -> ClusterTarget:
    from dataclasses import replace

    target = invocation.target()
    return replace(target, is_read_only=target.is_read_only or is_read_only)


def _with_places(
    target: ClusterTarget, checkpoints: list[str] | None, event_logs: list[str] | None, logs: list[str] | None
) -> ClusterTarget:
    """Return the cluster with the places that options name; for Spark, all come from options or none."""
    from dataclasses import replace

    if checkpoints or event_logs:
        target = replace(target, checkpoints=tuple(checkpoints or ()), event_logs=tuple(event_logs or ()))
    return replace(target, logs=tuple(logs)) if logs else target
