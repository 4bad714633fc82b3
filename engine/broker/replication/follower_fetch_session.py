"""A follower's side of a fetch session (KIP-227): what the leader remembers, and so need not be sent again.

The fetcher says which partitions it wants and how; each request carries only what changed since the last one. The
session sends nothing itself. Source: FetchSessionHandler of Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from engine.common.errors import ErrorCode, error_code
from engine.common.model import TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic, PartitionData

logger = logging.getLogger("org.apache.kafka.clients.FetchSessionHandler")

INITIAL_EPOCH = 0
SESSION_EPOCH_MAX = 2**31 - 1
TOPIC_IDS_SINCE = 13
"""Fetch versions from here on name topics by id only."""


class FetchWanted(NamedTuple):
    """What a follower asks about one partition. A session need not repeat an equal one.

    ``asker`` distinguishes the answers of two topics that had the same name one after the other.
    """

    topic_id: bytes
    fetch_offset: int
    log_start_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    asker: object = None


class FetchPlan(NamedTuple):
    """The session part of one Fetch request. ``partitions`` are all those that the leader will look at for it."""

    session_id: int
    session_epoch: int
    sent: dict[TopicPartition, FetchWanted]
    """What the request says: a list of it is long to make, and ``add_to_topics`` makes a part."""
    forgotten: list[ForgottenTopic]
    uses_topic_ids: bool
    partitions: dict[TopicPartition, FetchWanted]

    @property
    def is_full(self) -> bool:
        return self.session_epoch == INITIAL_EPOCH


class FollowerFetchSession:
    """The session with one leader, whether established or not."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._session_id = 0
        self._epoch = INITIAL_EPOCH
        self._uses_topic_ids = False
        self._wanted: dict[TopicPartition, FetchWanted] = {}
        self._told: dict[TopicPartition, FetchWanted] = {}
        """What the leader remembers as of the last request."""
        self._changed: dict[TopicPartition, None] = {}
        self._without_topic_id = 0
        self._topic_names: dict[bytes, str] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wanted, and the leader has nothing to forget."""
        return not self._wanted and (self._epoch == INITIAL_EPOCH or not self._told)

    def want(self, topic_partition: TopicPartition, wanted: FetchWanted, *, is_last: bool = False) -> None:
        """Fetch the partition like this from the next request on.

        ``is_last`` puts it behind all others: a leader without a session for it reads in the order of the request.
        """
        previous = self._wanted.pop(topic_partition, None) if is_last else self._wanted.get(topic_partition)
        if previous is not None:
            self._without_topic_id -= previous.topic_id == ZERO_TOPIC_ID
        self._without_topic_id += wanted.topic_id == ZERO_TOPIC_ID
        self._topic_names[wanted.topic_id] = topic_partition.topic
        self._wanted[topic_partition] = wanted
        self._changed[topic_partition] = None

    def drop(self, topic_partition: TopicPartition) -> None:
        """Stop fetching the partition; harmless if it was not wanted."""
        previous = self._wanted.pop(topic_partition, None)
        if previous is not None:
            self._without_topic_id -= previous.topic_id == ZERO_TOPIC_ID
            self._changed[topic_partition] = None

    def plan(self) -> FetchPlan:
        """Return the next request's session part, and count it as sent."""
        can_use_topic_ids = self._without_topic_id == 0
        if self._epoch != INITIAL_EPOCH and can_use_topic_ids != self._uses_topic_ids:
            # A session uses ids or names for its whole life.
            self.restart()
        self._uses_topic_ids = can_use_topic_ids
        forgotten: list[tuple[TopicPartition, bytes]] = []
        if self._epoch == INITIAL_EPOCH:
            sent = self._told = dict(self._wanted)
            self._topic_names = {wanted.topic_id: topic for (topic, _), wanted in sent.items()}
        else:
            sent, forgotten = self._changes()
        self._changed.clear()
        return FetchPlan(
            self._session_id, self._epoch, sent, _forgotten_topics(forgotten), can_use_topic_ids, self._told
        )

    def handle_response(
        self, response: FetchResponse, plan: FetchPlan, api_version: int
    ) -> list[tuple[TopicPartition, PartitionData]] | None:
        """Process the answer and return its partitions; None if the session has to start over."""
        error = error_code(response.error_code)
        if error is not ErrorCode.NONE:
            logger.info(
                "%s Node was unable to process the fetch request with (sessionId=%d, epoch=%s): %s.",
                self._name,
                plan.session_id,
                _epoch_text(plan.session_epoch),
                error.name,
            )
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = 0
            self._epoch = INITIAL_EPOCH
            return None
        answered = self._answered(response, api_version)
        has_all = all(tp in plan.partitions for tp, _ in answered)
        if not has_all or (plan.is_full and len(answered) != len(plan.partitions)):
            logger.info("%s The fetch answer does not fit the session's partitions; it is dropped.", self._name)
            self.restart()
            return None
        if response.session_id == 0:
            self._session_id = 0
            self._epoch = INITIAL_EPOCH
        elif plan.is_full:
            self._session_id = response.session_id
            self._epoch = 1
        else:
            self._epoch = 1 if self._epoch == SESSION_EPOCH_MAX else self._epoch + 1
        return answered

    def restart(self) -> None:
        """Send everything again in the next request, and close the current session if the leader still has it."""
        self._epoch = INITIAL_EPOCH

    def describe(self) -> str:
        """Return the session as Kafka's log lines do."""
        session_id = str(self._session_id) if self._session_id else "INVALID"
        return f"(sessionId={session_id}, epoch={_epoch_text(self._epoch)})"

    def _answered(self, response: FetchResponse, api_version: int) -> list[tuple[TopicPartition, PartitionData]]:
        goes_by_id = api_version >= TOPIC_IDS_SINCE
        names = self._topic_names
        return [
            (TopicPartition(names.get(topic.topic_id, "") if goes_by_id else topic.topic, data.partition_index), data)
            for topic in response.responses
            for data in topic.partitions
        ]

    def _changes(self) -> tuple[dict[TopicPartition, FetchWanted], list[tuple[TopicPartition, bytes]]]:
        sent: dict[TopicPartition, FetchWanted] = {}
        forgotten: list[tuple[TopicPartition, bytes]] = []
        for topic_partition in self._changed:
            wanted, sent_before = self._wanted.get(topic_partition), self._told.get(topic_partition)
            if wanted is None:
                if sent_before is not None:
                    forgotten.append((topic_partition, sent_before.topic_id))
                    del self._told[topic_partition]
            elif wanted != sent_before:
                if sent_before is not None and sent_before.topic_id != wanted.topic_id and self._uses_topic_ids:
                    forgotten.append((topic_partition, sent_before.topic_id))
                sent[topic_partition] = self._told[topic_partition] = wanted
        return sent, forgotten


def _epoch_text(epoch: int) -> str:
    return "INITIAL" if epoch == INITIAL_EPOCH else str(epoch)


def add_to_topics(topics: list[FetchTopic], sent: Iterable[tuple[TopicPartition, FetchWanted]]) -> None:
    """Keep the order of the partitions: those of a topic stand together only if they follow each other."""
    for (name, index), wanted in sent:
        if not topics or (topics[-1].topic, topics[-1].topic_id) != (name, wanted.topic_id):
            topics.append(FetchTopic(topic=name, topic_id=wanted.topic_id, partitions=[]))
        topics[-1].partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=wanted.current_leader_epoch,
                fetch_offset=wanted.fetch_offset,
                last_fetched_epoch=wanted.last_fetched_epoch,
                log_start_offset=wanted.log_start_offset,
                partition_max_bytes=wanted.max_bytes,
            )
        )


def _forgotten_topics(forgotten: Iterable[tuple[TopicPartition, bytes]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for (name, index), topic_id in forgotten:
        topic = topics.setdefault((name, topic_id), ForgottenTopic(topic=name, topic_id=topic_id, partitions=[]))
        topic.partitions.append(index)
    return list(topics.values())
