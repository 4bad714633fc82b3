"""Which broker of a cluster to restart next: the dashboard's advice, asked for once."""

from __future__ import annotations

from typing import Final

from engine.admin.analysis.restart_board import RestartBoard, restart_board
from engine.admin.analysis.tallies import Tallies
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import NAME_ZOOKEEPER
from engine.admin.watch.frame import Stage
from engine.admin.watch.live_feed import first_frame_with

_NEEDED: Final = (
    Stage.MEMBERS, Stage.METADATA, Stage.REASSIGNMENTS, Stage.SETTINGS, Stage.PROBES, Stage.LOG_DIRS,
)  # fmt: skip
"""What a verdict rests on; log dirs show topics that lists hide. Where one cannot be read, the verdict says so."""


async def read_restart_order(cluster: Cluster, since_ms: int | None = None) -> RestartBoard:
    """Watch a cluster until each fact was read once, or could not be, and judge every broker.

    It watches over connections of its own; ``cluster`` learns which rights were missing. The caller bounds the time.

    Args:
        since_ms: brokers that registered later, by ZooKeeper's clock, have been restarted already.

    Raises:
        BadRequest: ``since_ms`` is given without ZooKeeper, which alone says when brokers registered.
        Unreachable: no side of the cluster that the target names answers, or lets klamm in.
    """
    if since_ms is not None and not cluster.target.may_ask_zookeeper:
        raise BadRequest("only ZooKeeper says when brokers registered", hint=NAME_ZOOKEEPER)
    frame = await first_frame_with(cluster.target, _NEEDED, note_denied=cluster.note_denied)
    return restart_board(frame, Tallies().of_frame(frame), since_ms=since_ms)
