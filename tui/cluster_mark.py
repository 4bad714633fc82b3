"""How a cluster is told from others: its name in its colour, and its label. Pure.

The profile says both. Without a colour, a production cluster has the colour of a warning.
"""

from __future__ import annotations

import re

from engine.admin.cluster.profiles import Colour
from tui.cells import Tone
from tui.lines import Line, Span, line
from tui.units import plain

_TONES = {Colour.GREEN: Tone.GOOD, Colour.YELLOW: Tone.WARN, Colour.RED: Tone.BAD, Colour.BLUE: Tone.ACCENT}
_PRODUCTION = re.compile(r"(?<![a-z])(?:prod|prd|production)(?![a-z])", re.IGNORECASE)
_NAME_MAX = 40
_LABEL_MAX = 20


def cluster_tone(name: str, label: str, colour: Colour | None) -> Tone:
    """Return the tone of a cluster's name."""
    if colour is not None:
        return _TONES[colour]
    return Tone.WARN if _PRODUCTION.search(name) or _PRODUCTION.search(label) else Tone.STRONG


def cluster_mark(name: str, label: str = "", colour: Colour | None = None) -> Line:
    """Return the name and the label, each cut if it would leave no room for anything else."""
    tone = cluster_tone(name, label, colour)
    spans: list[Span] = [(_cut(plain(name), _NAME_MAX), tone)]
    if label:
        spans.append((f" [{_cut(plain(label), _LABEL_MAX)}]", tone))
    return line(*spans)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
