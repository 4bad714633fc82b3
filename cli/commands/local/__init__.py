"""``klamm local``: brings the commands of the group together."""

from __future__ import annotations

from dataclasses import replace

from cli.commands.local import parts, up
from cli.commands.local.shared import DEFAULT_DIRECTORY, Directory, found_cluster, group
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

__all__ = ["group", "parts", "up"]


@group.command(
    "down", needs=Needs(changes=True, bounded=False), examples=("klamm local down", "klamm local down --dir elsewhere")
)
def down(invocation: Invocation, directory: Directory = DEFAULT_DIRECTORY) -> Report:
    """Stop the brokers, then ZooKeeper; the data stays in the folder."""
    from cli.views.local import local_report

    cluster = found_cluster(invocation, directory)
    before = cluster.status()
    if not invocation.goes_ahead(f"stop the local cluster in {directory}"):
        return local_report(before, exit_code=ExitCode.DONE)
    cluster.stop()
    ended = replace(
        before,
        brokers=tuple(replace(broker, alive=False, pid=None, paused=False) for broker in before.brokers),
        zookeeper_alive=False,
        zookeeper_pid=None,
        zookeeper_paused=False,
    )
    return local_report(ended, notes=(f"stopped; its data stays in {directory}",), exit_code=ExitCode.DONE)


@group.command("status", examples=("klamm local status", "klamm local status -o json | jq -r .bootstrap_servers"))
def status(invocation: Invocation, directory: Directory = DEFAULT_DIRECTORY) -> Report:
    """Show what runs where; exits with 1 if something is down or stopped (SIGSTOP)."""
    from cli.views.local import local_report

    return local_report(found_cluster(invocation, directory).status())


group.put_in_order("up", "down", "status", "start", "stop", "kill", "add", "wait", "controller")
