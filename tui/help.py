"""The window of keys, made from the registry of actions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tui.actions import Action, Group
from tui.cells import Tone
from tui.lines import Line, line

_MOVES = "  ↑ ↓, page up and down, home, end move the cursor; so does a click, and a second click opens"


def help_lines(actions: Sequence[Action], why_not: Callable[[Action], str]) -> list[Line]:
    """Return every action under its heading; one that cannot be done now says why."""
    lines: list[Line] = []
    for group in Group:
        of_group = [action for action in actions if action.group is group]
        if not of_group:
            continue
        lines += [()] * bool(lines) + [line((group.value, Tone.ACCENT))]
        for action in of_group:
            reason = why_not(action)
            lines.append(
                line(
                    (f"  {action.key_text:<8}", Tone.QUIET if reason else Tone.STRONG),
                    (f"{action.title:<18}", Tone.QUIET if reason else Tone.PLAIN),
                    (action.help + (f" — {reason}" if reason else ""), Tone.QUIET),
                )
            )
    return [*lines, (), line((_MOVES, Tone.QUIET))]
