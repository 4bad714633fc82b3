"""Which broker of a cluster to restart next: the dashboard's advice, asked for once."""

from __future__ import annotations

from typing import Final

from engine.admin.analysis.restarts import RestartBoard, restart_board
from engine.admin.analysis.tallies import Tallies
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.remedies import START_IT
from engine.admin.cluster.target import ClusterTarget
from engine.admin.watch.frame import Frame, LinkState, Stage
from engine.admin.watch.live_feed import LiveFeed

_NEEDED: Final = (Stage.MEMBERS, Stage.METADATA, Stage.REASSIGNMENTS, Stage.SETTINGS, Stage.PROBES)
"""What a verdict rests on. Where one cannot be read, the verdict says so."""


async def read_restart_order(cluster: Cluster) -> RestartBoard:
    """Watch a cluster until each fact was read once, or could not be, and judge every broker.

    It watches over connections of its own; ``cluster`` learns which rights were missing. The caller bounds the time.

    Raises:
        Unreachable: no side of the cluster that the target names answers, or lets klamm in.
    """
    target = cluster.target
    feed = LiveFeed(target)
    await feed.start()
    try:
        async for frame in feed.frames():
            _check_links(frame, target)
            if frame.cluster is not None and _is_settled(frame):
                return restart_board(frame, Tallies().of_frame(frame))
    finally:
        cluster.note_denied(feed.denied)
        await feed.close()
    raise Unreachable(f"the watch of {target.name} ended before the cluster was read")


def _is_settled(frame: Frame) -> bool:
    """Whether each needed stage has been read, or has an error: that it failed, or cannot be read here."""
    if any(link.state is LinkState.CONNECTING for link in frame.links.values()):
        return False
    stages = [frame.stage(stage) for stage in _NEEDED]
    return all(status.read_at_ms is not None or status.error for status in stages)


def _check_links(frame: Frame, target: ClusterTarget) -> None:
    used = [link for link in frame.links.values() if link.state is not LinkState.UNUSED]
    gone = [link for link in used if link.state in (LinkState.LOST, LinkState.DENIED)]
    if not used or len(gone) < len(used) or frame.cluster is not None:
        return
    causes = "; ".join(f"{link.address}: {link.cause}" for link in gone)
    raise Unreachable(f"{target.name} cannot be read: {causes}", hint=START_IT)
