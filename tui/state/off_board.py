"""What screens show although no frame holds it: read or made when the user asks for it. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.common.model import TopicPartition

if TYPE_CHECKING:
    # These imports are slow, and the first picture does without them.
    from engine.admin.state_changes.partition_log import PartitionLog
    from engine.admin.znodes.tree import Znode
    from engine.kafka.protocol.records.record import Record
    from tui.planning.opened_plan import OpenedPlan
    from tui.planning.plan_run import PlanRunState


@dataclass(frozen=True, slots=True)
class ZnodeLevel:
    """One znode with its children, as they were read; or why that failed."""

    path: str
    znodes: tuple[Znode, ...] = ()
    error: str = ""
    is_loading: bool = False


@dataclass(frozen=True, slots=True)
class ShownLog:
    """What brokers' state-change logs say about a partition; or why that is unknown."""

    name: TopicPartition
    log: PartitionLog | None = None
    error: str = ""
    is_loading: bool = False


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """The first record of a partition at or after an offset; or why it is unknown; with neither there is none."""

    name: TopicPartition
    offset: int
    record: Record | None = None
    error: str = ""
    is_loading: bool = False


@dataclass(slots=True)
class OffBoard:
    """What is shown of one cluster, apart from its board. ``run`` may be that of another plan."""

    znodes: ZnodeLevel = ZnodeLevel("/")
    partition_log: ShownLog | None = None
    record: ShownRecord | None = None
    plan: OpenedPlan | None = None
    run: PlanRunState | None = None

    def record_at(self, topic: str, partition: int, offset: int | None) -> ShownRecord | None:
        """Return what was read there; None if another record was asked for since, or none."""
        shown = self.record
        is_it = shown is not None and (shown.name, shown.offset) == (TopicPartition(topic, partition), offset)
        return shown if is_it else None

    @property
    def is_plan_under_way(self) -> bool:
        return self.run is not None and self.run.is_under_way
