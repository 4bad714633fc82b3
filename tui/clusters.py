"""Goes from one cluster of the profiles to another, and from the table of all of them into one and back."""

from __future__ import annotations

from pathlib import Path

from engine.admin.cluster.target import ClusterTarget
from tui.cells import Tone
from tui.cluster_mark import cluster_tone
from tui.dialogs.dialog import TextDialog
from tui.dialogs.menu import Choice, MenuDialog
from tui.lines import line
from tui.main_view import MainView
from tui.operations.operation import EXPECTED, failure_text
from tui.recorded_feed import RecordedFeed
from tui.state.fleet import Member


def ask_for_cluster(screen: MainView) -> None:
    """Let a person choose a cluster: from the table of all, if there is one, else from a menu."""
    session = screen.dashboard.session
    if _is_busy(screen):
        return
    if session.fleet is not None:
        if session.shows_fleet:
            screen.tell("enter opens the cluster under the cursor")
        else:
            screen.run_worker(_show_fleet(screen), name="switch", exclusive=True, group="switch")
        return
    profiles = session.profiles
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


def open_member(screen: MainView, member: Member) -> None:
    """Go into one of many clusters."""
    if member.target is None:
        _cannot_be_opened(screen, member.name, member.error)
    else:
        screen.run_worker(_open(screen, member.target), name="switch", exclusive=True, group="switch")


def leave_for_fleet(screen: MainView) -> None:
    """Go back to the table of all clusters, if there is one."""
    session = screen.dashboard.session
    if session.fleet is not None and not session.shows_fleet and not _is_busy(screen):
        screen.run_worker(_show_fleet(screen), name="switch", exclusive=True, group="switch")


def _is_busy(screen: MainView) -> bool:
    if screen.opened_desk is not None and screen.opened_desk.left_behind:
        screen.tell("a plan is being carried out here: Z stops it, or let it end first", is_error=True)
        return True
    return False


async def _show_fleet(screen: MainView) -> None:
    name = screen.dashboard.cluster_name
    await screen.dashboard.switch_cluster(None)
    screen.begin_anew(row=name)


async def _open(screen: MainView, target: ClusterTarget) -> None:
    await screen.dashboard.switch_cluster(target)
    screen.begin_anew()


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
        _cannot_be_opened(screen, name, failure_text(error))
        return
    screen.begin_anew()
    if isinstance(before, RecordedFeed):
        screen.tell(f"the recording {before.path} has ended: it is of the cluster that you have left")


def _cannot_be_opened(screen: MainView, name: str, why: str) -> None:
    screen.app.push_screen(TextDialog(f"Cluster {name} cannot be opened", [line((why, Tone.BAD))], folds=True))
