"""Everything that a key, the palette, a click or ``:`` can do, in one table. Pure.

Keys, footer, help, palette, ``keys.toml`` and the table of keys in the docs all come from it, so they cannot differ.
An action that changes a cluster says so here, and read-only mode refuses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from tui.drawing.cells import Tone
from tui.drawing.lines import Line, beside, line


class Group(StrEnum):
    """The heading of the help under which an action appears."""

    SCREENS = "Screens"
    ROWS = "Rows"
    VIEW = "View"
    CHANGES = "Changes"
    PLANS = "Plans"
    RECORDING = "Recording"
    PROGRAM = "Program"


@dataclass(frozen=True, slots=True)
class Action:
    """Something that the user can do.

    Attributes:
        id: its name in ``keys.toml``.
        keys: as Textual names them; several do the same.
        title: in footer and palette.
        help: what it does, in a sentence.
        pages: the screens it belongs to; if none is named, all.
        changes: it changes the cluster, so read-only refuses it.
        in_footer: it is worth a place in the line at the bottom.
        short: replaces the title there, and among the tabs at the top, if not all titles fit.
    """

    id: str
    keys: tuple[str, ...]
    title: str
    help: str
    group: Group
    pages: frozenset[str] = frozenset()
    changes: bool = False
    in_footer: bool = False
    short: str = ""

    def is_on(self, page: str) -> bool:
        return not self.pages or page in self.pages

    @property
    def is_of_rows(self) -> bool:
        """Whether it does something with the rows of a table."""
        return self.id.startswith(("row.", "rows."))

    @property
    def key_text(self) -> str:
        """Its keys for people: ``enter``, ``^s``, ``D``."""
        return " ".join(key_label(key) for key in self.keys)


def _action(
    group: Group, id_: str, keys: str, title: str, help_: str, pages: str = "", *,
    changes: bool = False, in_footer: bool = False, short: str = "",
) -> Action:  # fmt: skip
    return Action(id_, tuple(keys.split()), title, help_, group, frozenset(pages.split()), changes, in_footer, short)


_screen, _row, _view, _plan, _replay, _program = (
    partial(_action, group)
    for group in (Group.SCREENS, Group.ROWS, Group.VIEW, Group.PLANS, Group.RECORDING, Group.PROGRAM)
)
_change = partial(_action, Group.CHANGES, changes=True)

ACTIONS: tuple[Action, ...] = (
    _screen("page.overview", "1", "Overview", "Whether the cluster is healthy, and if not, why.", short="Over"),
    _screen("page.brokers", "2", "Brokers", "Who is there, what each carries, and what stopping it would cost.",
            short="Brok"),
    _screen("page.topics", "3", "Topics", "Topics with the state of their partitions, traffic and sizes.",
            short="Topic"),
    _screen("page.partitions", "4", "Partitions", "Leader, ISR and offsets of every partition.", short="Part"),
    _screen("page.groups", "5", "Groups", "Consumer groups: lag in records and time, and its trend.", short="Group"),
    _screen("page.reassignments", "6", "Reassignments",
            "What is being moved: bytes, rate, time left, and what stands still.", short="Moves"),
    _screen("page.plans", "7", "Plans", "Make a plan, look at it, carry it out, and roll it back.", short="Plan"),
    _screen("page.timeline", "8", "Timeline", "Everything that happened while the dashboard was watching.",
            short="Time"),
    _screen("page.spark", "9", "Spark", "Spark's streaming queries."),
    _screen("page.zookeeper", "0", "ZooKeeper", "The znodes, decoded."),
    _screen("page.logs", "l", "Logs",
            "What the dashboard itself has logged; w on a partition shows what brokers logged about it."),
    _row("row.open", "enter", "Open", "Open what is under the cursor.", in_footer=True),
    _row("history.leave", "escape", "Back", "Close the filter, or go back to where you came from."),
    _row("history.back", "left_square_bracket", "Back in history", "Go back to the previous screen."),
    _row("history.forward", "right_square_bracket", "Forward", "Go forward again."),
    _row("rows.filter", "slash", "Filter", "Keep rows that contain a text; !text leaves out, ~text is fuzzy.",
         in_footer=True),
    _row("rows.sort", "s", "Sort", "Sort by the next column; a click on a title sorts too."),
    _row("rows.reverse", "S", "Reverse", "Reverse the order."),
    _row("rows.right", "right", "Columns right", "Show the columns further right; the first stays."),
    _row("rows.left", "left", "Columns left", "Show the columns further left again."),
    _row("rows.tag", "t", "Tag", "Tag the row: an operation applies to all tagged rows."),
    _row("rows.tag_all", "T", "Tag all", "Tag all visible rows, or remove all tags."),
    _row("rows.trouble", "z", "Problems only", "Show only rows with a problem; events by severity.", in_footer=True),
    _row("partition.log", "w", "Broker logs", "Show what the brokers' state-change logs say about the partition.",
         "partitions", in_footer=True),
    _row("problem.why", "w", "Why", "Say all that is known of the problem: cases, what happened then, what to do.",
         "overview brokers groups reassignments spark", in_footer=True),
    _row("problem.incident", "o", "Incident", "Show what followed from the failed broker under the cursor, in time.",
         "overview", in_footer=True),
    _view("view.pause", "space", "Pause", "Freeze the view; data keeps coming in behind it."),
    _view("view.refresh", "r", "Refresh", "Ask the cluster now."),
    _view("view.faster", "equals_sign", "Faster", "Ask more often, down to every half second."),
    _view("view.slower", "minus", "Slower", "Ask less often, up to every 10 seconds."),
    _view("view.source", "i", "Sources", "Show the source of the data, its age and what it cost."),
    _view("view.copy", "y", "Copy", "Copy the row, the column, the view or the command for it."),
    _view("view.export", "ctrl+s", "Export", "Write the view as CSV or JSON, or the screen as SVG."),
    _view("view.theme", "ctrl+t", "Theme", "Use the next theme."),
    _change("topic.create", "N", "New topic", "Create a topic.", "topics", in_footer=True, short="new"),
    _change("topic.grow", "plus", "Grow", "Add partitions to the topic.", "topics partitions"),
    _change("settings.alter", "A", "Settings", "Show, set or drop settings of the topic or the broker.",
            "overview brokers topics partitions", in_footer=True),
    _change("producers.quota", "Q", "Quota", "Hold all producers back by a quota, which works at once; or let them go.",
            "overview"),
    _change("topic.delete", "D", "Delete", "Delete the topics with all their records.", "topics", in_footer=True),
    _change("leader.elect", "E", "Elect", "Give partitions back to their preferred leaders.",
            "overview brokers topics partitions", in_footer=True),
    _change("leader.elect_unclean", "U", "Elect unclean",
            "Elect any live replica if a partition has no leader; records may be lost.", "overview topics partitions"),
    _change("reassignment.cancel", "C", "Cancel", "Cancel reassignments: partitions go back to the replicas they had.",
            "overview reassignments", in_footer=True),
    _change("reassignment.throttle", "H", "Throttle", "Change how fast brokers copy for reassignments.",
            "overview reassignments", in_footer=True),
    _change("reassignment.unthrottle", "X", "Remove throttles", "Remove throttles that no move needs: klamm's first.",
            "overview reassignments", in_footer=True, short="unthrottle"),
    _change("replicas.verify", "V", "Verify", "Compare the replicas of the topics, batch by batch.",
            "topics partitions", changes=False),
    _change("records.delete", "X", "Delete records", "Delete the oldest records of the partitions.", "partitions"),
    _change("transactions.abort", "Z", "Abort hanging",
            "End transactions that hold readers up and that no producer will end.", "overview partitions"),
    _plan("plan.rebalance", "B", "Rebalance", "Plan how to level the brokers.", "overview brokers"),
    _plan("plan.retire", "R", "Retire", "Plan how to empty the brokers, so that they can be removed.",
          "overview brokers", in_footer=True),
    _plan("plan.replace", "P", "Replace", "Plan how another broker takes over from this one.", "brokers"),
    _plan("plan.move", "M", "Move", "Plan how to move the topics to a list of brokers.", "topics partitions"),
    _plan("plan.factor", "F", "Factor", "Plan another replication factor for the topics.", "topics partitions"),
    _plan("plan.make", "N", "New plan", "Make a plan of any strategy.", "plans", in_footer=True, short="new"),
    _plan("plan.open", "o", "Open", "Open a plan file.", "plans", in_footer=True),
    _plan("plan.save", "w", "Save", "Write the plan to a file.", "plans", in_footer=True),
    _plan("plan.details", "d", "Details", "Show the whole plan: score card, brokers, waves, the largest moves.",
          "plans", in_footer=True),
    _plan("plan.explain", "e", "Explain", "Say why the partition moves.", "plans"),
    _plan("plan.check", "c", "Check", "Compare the plan with the cluster as it is.", "plans", in_footer=True),
    _plan("plan.history", "J", "History", "Show what was done with plans, when and by whom, from the journals.",
          "reassignments plans"),
    _plan("plan.apply", "A", "Apply", "Carry the plan out in waves: a few moves at a time.", "plans", changes=True,
          in_footer=True),
    _plan("plan.resume", "R", "Resume", "Continue a plan that was stopped or killed.", "overview reassignments plans",
          changes=True),
    _plan("plan.rollback", "B", "Roll back", "Move every partition of the plan back to where it was.", "plans",
          changes=True, in_footer=True),
    _plan("plan.throttle", "H", "Throttle", "Change how fast brokers copy for the plan.", "plans", changes=True,
          in_footer=True),
    _plan("plan.stop", "Z", "Stop", "End the run of the plan; moves under way go on in the cluster.", "plans",
          changes=True, in_footer=True),
    _plan("plan.cancel", "C", "Cancel", "End the run, and cancel the plan's moves under way.", "plans", changes=True,
          in_footer=True),
    _change("group.reset", "O", "Reset offsets", "Set the group's committed offsets.", "overview groups",
            in_footer=True),
    _change("group.delete_offsets", "X", "Delete offsets", "Delete the group's committed offsets of a topic.",
            "groups"),
    _change("group.delete", "D", "Delete", "Delete the groups with all their committed offsets.", "groups",
            in_footer=True),
    _replay("replay.step", "full_stop", "Next frame", "Show the next frame of the recording."),
    _replay("replay.back", "comma", "Previous frame", "Show the previous frame."),
    _replay("replay.begin", "less_than_sign", "First frame", "Go to the beginning."),
    _replay("replay.end", "greater_than_sign", "Last frame", "Go to the end."),
    _program("command.line", "colon", "Command", "Type where to go, such as :t orders or :b 2.", in_footer=True),
    _program("palette", "ctrl+p", "Palette", "Find an action, a topic, a group or a broker by its name."),
    _program("clusters", "ctrl+o", "Clusters", "Choose another cluster of your profiles."),
    _program("help", "question_mark f1", "Help", "Show all keys of this screen.", in_footer=True),
    _program("quit", "q", "Quit", "Quit; the cluster finishes what it was asked to do.", in_footer=True),
)  # fmt: skip
"""All actions."""
PAGES = tuple(
    (action.id.removeprefix("page."), action.keys[0], action.title)
    for action in ACTIONS
    if action.group is Group.SCREENS
)
"""The screens by name, with their keys and titles."""
OF_THE_PROBLEM = frozenset({"plan.retire", "plan.resume"})
"""They share a key on the overview: the problem under the cursor has at most one of them."""

_LABELS = {
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "full_stop": ".",
    "comma": ",",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left": "←",
    "right": "→",
    "escape": "esc",
}


def key_label(key: str) -> str:
    """Return a key as people write it: ``ctrl+s`` is ``^s``."""
    if key.startswith("ctrl+"):
        return "^" + key_label(key.removeprefix("ctrl+"))
    return _LABELS.get(key, key)


def key_name(text: str) -> str:
    """Return Textual's name of a key that a user wrote: ``/`` or ``^s``; other texts as they are."""
    if len(text) > 1 and text.startswith("^"):
        return "ctrl+" + text[1:]
    names = {label: name for name, label in _LABELS.items()}
    return names.get(text, text)


@dataclass(frozen=True)
class Registry:
    """The actions with the keys in force."""

    actions: tuple[Action, ...] = ACTIONS

    def named(self, action_id: str) -> Action:
        return next(action for action in self.actions if action.id == action_id)

    def key_of(self, page: str) -> str:
        return key_label(self.named(f"page.{page}").keys[0])

    @property
    def keys(self) -> frozenset[str]:
        """All keys that do something on any screen."""
        return frozenset(key for action in self.actions for key in action.keys)

    def on_page(self, page: str) -> tuple[Action, ...]:
        return tuple(action for action in self.actions if action.is_on(page))

    def for_key(self, key: str, page: str, mends: Sequence[str] = ()) -> Action | None:
        """Return what a key does on a screen; on a problem, before anything else, what ``mends`` it."""
        candidates = [action for action in self.on_page(page) if key in action.keys]
        return next((action for action in candidates if action.id in mends), candidates[0] if candidates else None)

    def elsewhere(self, key: str) -> str:
        """Say on which screens a key does something that does nothing here; empty if it does so nowhere."""
        actions = [action for action in self.actions if key in action.keys]
        places = [
            (action.title, [self.key_of(name) for name, _, _ in PAGES if name in action.pages]) for action in actions
        ]
        where = ", ".join(f"{title.lower()} on {' '.join(on)}" for title, on in places)
        return f"{key_label(key)} does nothing here: {where}" if where else ""

    def rebound(self, keys: Mapping[str, tuple[str, ...]]) -> Registry:
        """Return the same actions with other keys for some."""
        return Registry(
            tuple(replace(action, keys=keys[action.id]) if action.id in keys else action for action in self.actions)
        )


# The window of keys: those of this screen first

_MOVES = (
    "↑ ↓ or j k, g G, ^d ^u, page up and down, home, end move the cursor; so does a click, and a second click opens"
)
_COLUMN = 38
"""A key and its title need this many cells."""


def help_lines(actions: Sequence[Action], why_not: Callable[[Action], str], width: int = 80) -> list[Line]:
    """Return this screen's actions with what they do, then those of every screen, in as many columns as fit.

    An action that cannot be done now says why.
    """
    here = [action for action in actions if action.pages]
    # What holds for many is said once.
    often = {reason for reason, times in Counter(map(why_not, actions)).items() if reason and times > 2}

    def drawn(action: Action) -> Line:
        reason = why_not(action)
        why = f" — {reason}" if reason and reason not in often else ""
        strong, tone = (Tone.QUIET, Tone.QUIET) if reason else (Tone.STRONG, Tone.PLAIN)
        key = f"  {action.key_text:<8}", strong
        if action.pages:
            return line(key, (f"{action.title:<18}", tone), (f"{action.help}{why}", Tone.QUIET))
        return line(key, (f"{action.title}{why}", tone))

    def shared(among: Sequence[Action]) -> list[str]:
        """Return the reasons of many among these actions."""
        return sorted(often & {*map(why_not, among)})

    def titled(group: Sequence[Action]) -> list[Line]:
        reasons = [(f"   {reason}", Tone.WARN) for reason in shared(group)]
        return [line((group[0].group.value, Tone.ACCENT), *reasons), *map(drawn, group), ()]

    lines = [
        line(("This screen", Tone.ACCENT)),
        *(line((f"  dim keys do nothing now: {reason}", Tone.WARN)) for reason in shared(here)),
        *map(drawn, here),
        (),
    ]
    groups = [[action for action in actions if not action.pages and action.group is group] for group in Group]
    blocks = [titled(group) for group in groups if group]
    columns: list[list[Line]] = [[] for _ in range(max(1, min(len(blocks), width * 9 // 10 // _COLUMN)))]
    for block in blocks:
        min(columns, key=len).extend(block)
    everywhere = columns[0]
    for column in columns[1:]:
        everywhere = beside(everywhere, column, left_width=max(_COLUMN * columns.index(column) - 3, 0))
    return [*(lines if here else []), *everywhere, line((_MOVES, Tone.QUIET))]
