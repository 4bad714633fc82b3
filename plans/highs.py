"""HiGHS with the settings that all programs here share, and its limits: they count its work, never its time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import highspy

from plans.work import Work

_LOOK_ENTRIES, _LOOK_STEPS_MIN = 400, 4
"""Between two checks of its limits, HiGHS does about one step of work for this many entries of the program."""

_LOOK_GROWS = 64
"""From this many steps on, the work of a look grows with the square of the entries: each step of the simplex takes
longer."""


class _SilentHighs(highspy.Highs):
    """HiGHS 1.16 greets on stdout once its callbacks are on, and its constructor turns them on."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]


def new_solver() -> Any:
    """Return HiGHS with the settings used everywhere here: silent, and the same on every machine."""
    solver: Any = _SilentHighs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    return solver


def run_limited(
    solver: Any,
    work: Work,
    share: int = 1,
    is_enough: Callable[[float, float], bool] | None = None,
    *,
    look_cost: float = 1.0,
    vain_share: int = 1,
) -> None:
    """Run an integer program until it is solved, or has used one part in ``share`` of the work that is left.

    After one part in ``vain_share`` of that it ends if it has no result yet.

    HiGHS checks whether to go on at fixed points of its work: after a pass of cuts, a heuristic, a dive, a node.
    At each of them ``is_enough`` receives the best result and the bound, and may end the run. ``look_cost``: a look
    takes this many times the work that the size of the program suggests.
    """
    size = int(solver.getNumNz()) // _LOOK_ENTRIES
    steps = max(1, int(look_cost * max(_LOOK_STEPS_MIN, size, size * size // _LOOK_GROWS)))
    checks, checks_max = 0, max(0, work.left) // steps // share

    def look(event: Any) -> None:
        nonlocal checks
        checks += 1
        cost, bound = event.data_out.mip_primal_bound, event.data_out.mip_dual_bound
        is_in_vain = math.isinf(cost) and checks > checks_max // vain_share
        if checks > checks_max or is_in_vain or (is_enough is not None and is_enough(cost, bound)):
            event.interrupt()

    solver.cbMipInterrupt += look
    try:
        solver.run()
    finally:
        solver.cbMipInterrupt -= look
    work.spend(steps * checks)
