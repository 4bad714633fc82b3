"""The window of keys, made from the registry of actions: those of this screen first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tui.actions import Action, Group
from tui.cells import Tone
from tui.lines import Line, beside, line

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

    def own_reason(action: Action) -> str:
        return "" if why_not(action) in often else why_not(action)

    lines = [
        line(("This screen", Tone.ACCENT)),
        *(line((f"  dim keys do nothing now: {reason}", Tone.WARN)) for reason in sorted(often)),
        *(_whole(action, own_reason(action), is_dim=bool(why_not(action))) for action in here),
        (),
    ]
    groups = [[action for action in actions if not action.pages and action.group is group] for group in Group]
    blocks = [
        [
            line((group[0].group.value, Tone.ACCENT)),
            *(_short(action, own_reason(action), is_dim=bool(why_not(action))) for action in group),
            (),
        ]
        for group in groups
        if group
    ]
    columns: list[list[Line]] = [[] for _ in range(max(1, min(len(blocks), width * 9 // 10 // _COLUMN)))]
    for block in blocks:
        min(columns, key=len).extend(block)
    everywhere = columns[0]
    for column in columns[1:]:
        everywhere = beside(everywhere, column, left_width=max(_COLUMN * columns.index(column) - 3, 0))
    return [*(lines if here else []), *everywhere, line((_MOVES, Tone.QUIET))]


def _whole(action: Action, reason: str, *, is_dim: bool) -> Line:
    return line(
        (f"  {action.key_text:<8}", Tone.QUIET if is_dim else Tone.STRONG),
        (f"{action.title:<18}", Tone.QUIET if is_dim else Tone.PLAIN),
        (action.help + (f" — {reason}" if reason else ""), Tone.QUIET),
    )


def _short(action: Action, reason: str, *, is_dim: bool) -> Line:
    title = action.title + (f" — {reason}" if reason else "")
    return line(
        (f"  {action.key_text:<8}", Tone.QUIET if is_dim else Tone.STRONG),
        (title, Tone.QUIET if is_dim else Tone.PLAIN),
    )
