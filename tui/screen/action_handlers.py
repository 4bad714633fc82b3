"""What each action does on the main screen, and why one cannot be done now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.target import ClusterTarget
from engine.admin.lag.group_lag import PartitionLag
from engine.admin.watch.feed import Playback
from engine.admin.watch.recording import RecordedFeed
from engine.common.model import TopicPartition
from tui.actions import help_lines
from tui.dialogs.dialog import Also, TextDialog
from tui.dialogs.menu import Choice, CommandDialog, MenuDialog, parse_command, suggestions
from tui.drawing.cells import Tone
from tui.drawing.lines import Line, line
from tui.operations.operation import EXPECTED, failure_text
from tui.pages import logs, replicas, timeline
from tui.pages.asides import aside_of
from tui.pages.clusters import cluster_tone
from tui.pages.page import rows_at
from tui.pages.why import why_lines
from tui.screen.main_screen import MainScreen
from tui.screen.offers import OPERATIONS, offer_for
from tui.screen.page_screen import why_not
from tui.state.fleet import Member
from tui.state.location import Location
from tui.state.problems import problems_of
from tui.state.status import source_lines
from tui.state.table_model import Filter, TableModel


def perform(screen: MainScreen, action_id: str) -> None:
    """Carry out an action, or say why not."""
    action = screen.dashboard.session.registry.named(action_id)
    if reason := why_not(screen, action):
        screen.tell(reason, is_error=True)
        return
    if not action.is_on(screen.location.screen):
        screen.tell(f"{action.title.lower()} belongs to {', '.join(sorted(action.pages))}", is_error=True)
        return
    if action.is_of_rows and action_id != "row.open" and screen.location.page == "overview":
        screen.tell("the worst problems come first: enter opens the rows of one")
    elif action_id.startswith("page."):
        screen.go_to(Location(action_id.removeprefix("page.")))
    elif action_id in OPERATIONS:
        screen.work.offer(offer_for(action_id, screen.view, chosen(screen, action_id)))
    elif action_id == "plan.resume" and (screen.off_board.plan is None or screen.location.page == "overview"):
        screen.desk.open(None if screen.problem is None else screen.problem.plan, resumes=True)
    elif action_id in _HANDLERS:
        _HANDLERS[action_id](screen)
    else:
        screen.work.offer(screen.desk.offer_for(action_id, screen.view, chosen(screen, action_id)))


def chosen(screen: MainScreen, action_id: str) -> list[Any]:
    """Return the subject of an operation: on the overview the rows of the problem, if the operation may mend it."""
    if screen.location.page == "partition":
        return list(replicas.chosen(screen.view))
    problem = screen.problem
    if problem is not None and action_id in problem.mends:
        return rows_at(screen.pages[problem.opens.page], replace(screen.view, location=problem.opens))
    return [] if screen.location.page == "overview" else screen.model.chosen


def _open(screen: MainScreen) -> None:
    item, page = screen.model.cursor_item, screen.location.page
    if item is None:
        return
    screen.model.is_opened = True
    if page == "logs":
        screen.app.push_screen(TextDialog("One line of the log", logs.whole(item), is_wide=True))
    elif page == "clusters":
        open_member(screen, item)
    elif page == "group" and item.status.is_trouble:
        _open_partition_of_group(screen, item)
    elif page == "overview" and item.plan is not None:
        screen.desk.open(item.plan)
    elif (location := screen.pages[page].opens(screen.view, item)) is not None:
        screen.go_to(location)


def _open_partition_of_group(screen: MainScreen, item: PartitionLag) -> None:
    """Show who reads a partition, the record that its group reads next, and how to step over that."""
    if item.committed_offset is not None:
        screen.work.read_record(TopicPartition(item.topic, item.partition), item.committed_offset)

    def told() -> list[Line]:
        partitions = screen.pages["group"].rows(screen.view).items
        now = next((partition for partition in partitions if partition.name == item.name), item)
        return aside_of(screen.view, "group", now, min(150, max(40, screen.size.width * 94 // 100 - 8)))

    def reset() -> None:
        screen.work.offer(offer_for("group.reset", screen.view, [item]))

    action = screen.dashboard.session.registry.named("group.reset")
    also = None if why_not(screen, action) else Also(action.keys[0], action.title.lower(), reset)
    title = f"{item.name} of group {screen.location.group}"
    screen.app.push_screen(TextDialog(title, told(), is_wide=True, folds=True, also=also, renewed=told))


def _why(screen: MainScreen) -> None:
    problem = screen.explained
    if problem is None:
        of_row = "" if screen.model.cursor_item is None else " with this row"
        screen.tell(f"nothing is wrong{f' with group {group}' if (group := screen.location.group) else of_row}")
        return

    def told() -> list[Line]:
        board = screen.dashboard.board
        now = problems_of(board)
        shown = next((candidate for candidate in now if candidate.key == problem.key), None)
        if shown is None:
            rest = ", ".join(other.subject for other in now[:3]) or "nothing is wrong"
            return [line((problem.subject, Tone.STRONG), (f"  is over; now: {rest}", Tone.GOOD))]
        return why_lines(shown, board, screen.dashboard.session.registry)

    screen.app.push_screen(TextDialog("Why", told(), is_wide=True, folds=True, renewed=told))


def _incident(screen: MainScreen) -> None:
    problem = screen.model.cursor_item
    if problem is None or problem.incident is None:
        screen.tell("incidents begin with a broker that fails while the dashboard watches; 8 shows all that happened")
        return
    screen.go_to(Location("timeline", incident=problem.incident))


def _partition_log(screen: MainScreen) -> None:
    items = replicas.chosen(screen.view) if screen.location.page == "partition" else [screen.model.cursor_item]
    if not items or items[0] is None:
        screen.tell("there is no partition under the cursor", is_error=True)
        return
    name = items[0].name
    screen.go_to(Location("logs", topic=name.topic, partition=name.partition))


def _leave(screen: MainScreen) -> None:
    if screen.leave_filter():
        return
    if screen.model.filter.is_empty or screen.location.page == "overview":
        _back(screen)
    else:
        screen.model.set_filter(Filter())
        screen.draw(is_new_data=False)


def _back(screen: MainScreen) -> None:
    if screen.history.back():
        screen.arrive()
    else:
        leave_for_fleet(screen)


def _forward(screen: MainScreen) -> None:
    if screen.history.forward():
        screen.arrive()


def _scroll_columns(screen: MainScreen, by: int) -> None:
    if not screen.table.scroll_columns(by):
        screen.tell(f"there are no columns further {'right' if by > 0 else 'left'}")


def _tag(screen: MainScreen) -> None:
    screen.model.toggle_tag()
    screen.table.take_key("down")
    screen.draw(is_new_data=False)


def _tag_all(screen: MainScreen) -> None:
    screen.model.toggle_all_tags()
    screen.draw(is_new_data=False)


def _trouble(screen: MainScreen) -> None:
    if screen.location.page == "timeline":
        screen.go_to(replace(screen.location, only=timeline.next_severity(screen.location.only)), is_visit=False)
        return
    screen.only_trouble ^= {screen.location.page}
    screen.draw(is_new_data=False)


def _pause(screen: MainScreen) -> None:
    screen.dashboard.toggle_pause()
    screen.draw(is_new_data=False)


def _refresh(screen: MainScreen) -> None:
    screen.dashboard.session.feed.refresh()
    screen.read_shown()
    screen.tell("asking now")


def _source(screen: MainScreen) -> None:
    member = screen.model.cursor_item if screen.location.page == "clusters" else None
    lines = source_lines((screen.dashboard if member is None else member).board.frame)
    screen.show_text("Where the data comes from", lines)


def _theme(screen: MainScreen) -> None:
    names = list(screen.dashboard.session.palettes)
    at = names.index(screen.app.theme) if screen.app.theme in names else -1
    screen.app.theme = names[(at + 1) % len(names)]
    screen.tell(f"theme {screen.app.theme}")


def _command(screen: MainScreen) -> None:
    registry = screen.dashboard.session.registry
    dialog = CommandDialog(lambda text: suggestions(text, registry, partial(_named, screen)))
    screen.ask(dialog, partial(_run_command, screen))


def _named(screen: MainScreen, page: str) -> list[str]:
    """Return the names that a command may give behind this screen."""
    board = screen.dashboard.board
    match page:
        case "topics" | "partitions":
            return [topic.name for topic in board.topics]
        case "brokers":
            return [str(broker) for broker in board.broker_ids]
        case "groups":
            return [group.name for group in board.frame.groups]
    return []


def places(screen: MainScreen) -> Iterator[tuple[str, str, Location]]:
    """Return the places that the palette finds by name: what it is called, what it is, and where."""
    for topic in _named(screen, "topics"):
        yield topic, "topic", Location("partitions", topic=topic)
    for group in _named(screen, "groups"):
        yield group, "consumer group", Location("group", group=group)
    for broker in _named(screen, "brokers"):
        yield f"broker {broker}", "its partitions", Location("partitions", broker=int(broker))


def _run_command(screen: MainScreen, text: str) -> None:
    if not text.removeprefix(":").strip():
        return
    word, _, rest = text.strip().removeprefix(":").partition(" ")
    if word == "plan" and rest.strip():
        screen.desk.open_named(rest)
        return
    try:
        meant = parse_command(text, screen.dashboard.session.registry)
    except BadRequest as error:
        screen.tell(str(error), is_error=True)
        return
    if isinstance(meant, Location):
        screen.go_to(meant)
    else:
        perform(screen, meant)


def _help(screen: MainScreen) -> None:
    page = screen.location.screen
    lines = help_lines(screen.dashboard.session.registry.on_page(page), partial(why_not, screen), screen.size.width)
    also = Also("slash", "finds an action", screen.app.action_command_palette)
    screen.app.push_screen(TextDialog(f"Keys of {page}", lines, is_wide=True, folds=True, also=also))


# How fast frames come, and a recording's steps and ends

REPLAY_SPEEDS = 1 / 64, 512.0


def change_rate(screen: MainScreen, factor: float) -> None:
    feed = screen.dashboard.session.feed
    if (playback := feed.playback) is not None:
        slowest, fastest = REPLAY_SPEEDS
        playback.set_speed(min(max(playback.speed / factor, slowest), fastest))
    else:
        feed.set_interval(feed.status.interval_s * factor)
    screen.draw_head()


def _replay(screen: MainScreen) -> Playback:
    """Return the recording; ``why_not`` has refused what belongs to recordings where there is none."""
    playback = screen.dashboard.session.feed.playback
    assert playback is not None
    return playback


# From one cluster of the profiles to another, and from the table of all of them into one and back


def ask_for_cluster(screen: MainScreen) -> None:
    """Let the user choose a cluster: from the table of all, if there is one, else from a menu."""
    session = screen.dashboard.session
    profiles = session.profiles
    if session.shows_fleet:
        screen.tell("enter opens the cluster under the cursor")
        return
    if session.fleet is not None:
        leave_for_fleet(screen)
        return
    if _is_busy(screen) or profiles is None:
        return
    choices = [
        Choice(
            profile.name,
            f"{profile.name}{f' [{profile.label}]' if profile.label else ''}"
            + f"   {profile.bootstrap_servers or profile.zookeeper}"
            + "   read-only" * profile.read_only,
            tone=cluster_tone(profile.name, profile.label or "", profile.colour),
        )
        for profile in profiles.profiles
    ]

    def chosen(name: str) -> None:
        screen.run_in_background(_switch(screen, name), name="switch", exclusive=True, group="switch")

    screen.ask(MenuDialog(f"Clusters of {profiles.path}", choices), chosen)


def open_member(screen: MainScreen, member: Member) -> None:
    if member.target is None:
        screen.show_text(f"Cluster {member.name} cannot be opened", [line((member.error, Tone.BAD))])
    else:
        screen.run_in_background(_look_at(screen, member.target), name="switch", exclusive=True, group="switch")


def leave_for_fleet(screen: MainScreen) -> None:
    """Go back to the table of all clusters, if there is one."""
    session = screen.dashboard.session
    if session.fleet is not None and not session.shows_fleet and not _is_busy(screen):
        screen.run_in_background(_look_at(screen, None), name="switch", exclusive=True, group="switch")


def _is_busy(screen: MainScreen) -> bool:
    if screen.opened_desk is not None and screen.opened_desk.left_behind:
        screen.tell("a plan is being carried out here: Z stops it, or let it end first", is_error=True)
        return True
    return False


async def _look_at(screen: MainScreen, target: ClusterTarget | None) -> None:
    """Open a cluster, or the table of all, on the row of the cluster that was left."""
    row = screen.dashboard.cluster_name if target is None else None
    await screen.dashboard.switch_cluster(target)
    screen.begin_anew(row)


async def _switch(screen: MainScreen, name: str) -> None:
    from engine.admin.cluster.target import Naming, resolve_target

    session, before = screen.dashboard.session, screen.dashboard.session.feed
    try:
        # One broken profile must not hide the others.
        jaas = None if session.target is None or session.target.jaas_file is None else str(session.target.jaas_file)
        naming = Naming(cluster=name, jaas_config=jaas, may_jaas_idle=True)
        target = resolve_target(naming, session.environment, Path.cwd())
        await _look_at(screen, target)
    except EXPECTED as error:
        screen.show_text(f"Cluster {name} cannot be opened", [line((failure_text(error), Tone.BAD))])
        return
    if isinstance(before, RecordedFeed):
        screen.tell(f"the recording {before.path} has ended: it is of the cluster that you have left")


_HANDLERS: Mapping[str, Callable[[MainScreen], object]] = {
    "row.open": _open,
    "history.leave": _leave,
    "history.back": _back,
    "history.forward": _forward,
    "rows.filter": lambda screen: screen.begin_filter(),
    "rows.sort": lambda screen: screen.put_in_order(TableModel.sort_by_next),
    "rows.reverse": lambda screen: screen.put_in_order(TableModel.reverse),
    "rows.left": lambda screen: _scroll_columns(screen, -1),
    "rows.right": lambda screen: _scroll_columns(screen, 1),
    "rows.tag": _tag,
    "rows.tag_all": _tag_all,
    "rows.trouble": _trouble,
    "partition.log": _partition_log,
    "problem.why": _why,
    "problem.incident": _incident,
    "view.pause": _pause,
    "view.refresh": _refresh,
    "view.faster": lambda screen: change_rate(screen, 0.5),
    "view.slower": lambda screen: change_rate(screen, 2),
    "view.source": _source,
    "view.copy": lambda screen: screen.saving.ask_what_to_copy(),
    "view.export": lambda screen: screen.saving.ask_what_to_export(),
    "view.theme": _theme,
    "plan.make": lambda screen: screen.desk.ask_for_strategy(),
    "plan.open": lambda screen: screen.desk.ask_what_to_open(),
    "plan.save": lambda screen: screen.desk.ask_where_to_save(),
    "plan.details": lambda screen: screen.desk.show_details(),
    "plan.explain": lambda screen: screen.desk.explain(),
    "plan.stop": lambda screen: screen.desk.ask_to_stop(),
    "replay.step": lambda screen: _replay(screen).step(1),
    "replay.back": lambda screen: _replay(screen).step(-1),
    "replay.begin": lambda screen: _replay(screen).seek(0),
    "replay.end": lambda screen: _replay(screen).seek(_replay(screen).count - 1),
    "command.line": _command,
    "palette": lambda screen: screen.app.action_command_palette(),
    "clusters": ask_for_cluster,
    "help": _help,
    "quit": lambda screen: screen.leave(0),
}
"""What the actions do that are no operations, by their ids."""
