"""Who learns which requests go to whom (``--verbose``), and that a change was accepted."""

from __future__ import annotations

from collections.abc import Callable

from engine.admin.cluster.remedies import Words

Accepted = Callable[[Words], None]
"""Called, once the cluster has accepted a change, with what goes on there and how to check it."""

Observer = Callable[[str], None]
"""Called with one line for each request: what is asked of whom."""


def tell_nobody(line: Words) -> None:
    """The observer of a caller who does not want to know."""


Complain = Callable[[str], None]
"""Called with what is wrong with something that was skipped to show the rest."""

OnRead = Callable[[int, int], None]
"""Called with how many topics were read so far, and of how many."""


def tell_nobody_how_far(done: int, total: int) -> None:
    """For a caller who does not want to know."""
