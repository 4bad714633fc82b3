"""``klamm local``: brings the commands of the group together."""

from __future__ import annotations

from cli.commands.local import parts, up
from cli.commands.local.shared import DEFAULT_DIRECTORY, Directory, found_cluster, group
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

__all__ = ["group", "parts", "up"]


@group.command(
    "down", needs=Needs(changes=True, bounded=False), examples=("klamm local down", "klamm local down --dir elsewhere")
)
def down(invocation: Invocation, directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Stop the brokers, then ZooKeeper; the data stays in the folder."""
    cluster = found_cluster(invocation, directory)
    if invocation.goes_ahead(f"stop the local cluster in {directory}"):
        cluster.stop()
        invocation.talk.say(f"stopped; its data stays in {directory}")


@group.command("status", examples=("klamm local status", "klamm local status -o json | jq -r .bootstrap_servers"))
def status(invocation: Invocation, directory: Directory = DEFAULT_DIRECTORY) -> Report:
    """Show what runs where; exits with 1 if something is down or stopped (SIGSTOP)."""
    from cli.views.local import local_report

    return local_report(found_cluster(invocation, directory).status())


group.put_in_order("up", "down", "status", "start", "stop", "kill", "add", "wait", "controller")
