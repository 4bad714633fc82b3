"""Goes from one cluster of the profiles to another."""

from __future__ import annotations

from pathlib import Path

from tui.cells import Tone
from tui.cluster_mark import cluster_tone
from tui.dialogs.dialog import TextDialog
from tui.dialogs.menu import Choice, MenuDialog
from tui.lines import line
from tui.main_view import MainView
from tui.operations.operation import EXPECTED, failure_text
from tui.recorded_feed import RecordedFeed


def ask_for_cluster(screen: MainView) -> None:
    """Let a person choose a cluster."""
    if screen.opened_desk is not None and screen.opened_desk.left_behind:
        screen.tell("a plan is being carried out here: Z stops it, or let it end first", is_error=True)
        return
    profiles = screen.dashboard.session.profiles
    if profiles is None:
        return
    choices = [
        Choice(
            one.name,
            f"{one.name}{f' [{one.label}]' if one.label else ''}   {one.bootstrap_servers or one.zookeeper}"
            + "   read-only" * one.read_only,
            tone=cluster_tone(one.name, one.label or "", one.colour),
        )
        for one in profiles.profiles
    ]

    def chosen(name: str | None) -> None:
        if name is not None:
            screen.run_worker(_switch(screen, name), name="switch", exclusive=True, group="switch")

    screen.app.push_screen(MenuDialog(f"Clusters of {profiles.path}", choices), chosen)


async def _switch(screen: MainView, name: str) -> None:
    from engine.admin.cluster.target import Naming, resolve_target

    before = screen.dashboard.session.feed
    try:
        # One broken profile must not hide the others.
        session = screen.dashboard.session
        jaas = None if session.target is None or session.target.jaas_file is None else str(session.target.jaas_file)
        naming = Naming(cluster=name, jaas_config=jaas, may_jaas_idle=True)
        target = resolve_target(naming, session.environment, Path.cwd())
        await screen.dashboard.switch_cluster(target)
    except EXPECTED as error:
        lines = [line((failure_text(error), Tone.BAD))]
        screen.app.push_screen(TextDialog(f"Cluster {name} cannot be opened", lines))
        return
    screen.begin_anew()
    if isinstance(before, RecordedFeed):
        screen.tell(f"the recording {before.path} has ended: it is of the cluster that you have left")
