"""Who learns which requests go to whom (``--verbose``), and that a change was accepted."""

from __future__ import annotations

from collections.abc import Callable

from engine.admin.cluster.remedies import Words

Accepted = Callable[[Words], None]
"""Is told, once the cluster has accepted a change, what goes on there and how to look at it."""

Observer = Callable[[str], None]
"""Is told, in one line each, what is asked of whom."""


def tell_nobody(line: Words) -> None:
    """The observer of a caller who does not want to know."""


Complain = Callable[[str], None]
"""Is told what is wrong with something that was passed over, so that the rest could be shown."""

OnRead = Callable[[int, int], None]
"""Is told how many topics were read so far, and of how many."""


def tell_nobody_how_far(done: int, total: int) -> None:
    """For a caller who does not want to know."""
