"""Finds the leader of a partition when a client asks the wrong broker, for answers that may name it (KIP-951)."""

from __future__ import annotations

from engine.broker.handlers.context import RequestContext
from engine.common.model import Node, TopicPartition


class LeaderHints:
    """Looks up leaders for one answer and collects their addresses on the request's listener."""

    __slots__ = ("_context", "nodes")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self.nodes: dict[int, Node] = {}

    def leader_of(self, topic_partition: TopicPartition) -> tuple[int, int] | None:
        """Return (leader, leader epoch), or None if this broker knows no leader with an address on this listener."""
        cache = self._context.broker.metadata_cache
        known = cache.partition_info(topic_partition)
        if known is None or known.leader < 0:
            return None
        node = cache.node(known.leader, self._context.peer.listener_name)
        if node is None:
            return None
        self.nodes[node.id] = node
        return known.leader, known.leader_epoch
