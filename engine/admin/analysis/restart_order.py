"""Which broker of a cluster to restart next: the dashboard's advice, asked for once."""

from __future__ import annotations

from typing import Final

from engine.admin.analysis.restarts import RestartBoard, restart_board
from engine.admin.analysis.tallies import Tallies
from engine.admin.cluster.target import ClusterTarget
from engine.admin.watch.frame import Stage
from engine.admin.watch.live_feed import first_frame_with

_NEEDED: Final = (Stage.MEMBERS, Stage.METADATA, Stage.REASSIGNMENTS, Stage.SETTINGS, Stage.PROBES)
"""What a verdict rests on. Where one cannot be read, the verdict says so."""


async def read_restart_order(target: ClusterTarget) -> RestartBoard:
    """Watch a cluster until each fact was read once, or could not be, and judge every broker.

    The caller bounds the time.

    Raises:
        Unreachable: no side of the cluster that the target names answers, or lets klamm in.
    """
    frame = await first_frame_with(target, _NEEDED)
    return restart_board(frame, Tallies().of_frame(frame))
