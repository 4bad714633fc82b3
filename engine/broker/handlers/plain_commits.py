"""OffsetCommit in its usual form: some partitions of one topic, without texts. Anything else is left to its handler.

Consumers commit the same partitions again and again, so all but the offsets is known from the commit before, and
nothing is decoded. A commit that could be refused, or has to wait, takes the handler's way too: there is one place for
each error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Final

from engine.broker.coordinator.groups.commit_form import CommitForm, CommitForms, Committer
from engine.broker.coordinator.groups.commit_gathering import FIRST_PLAIN
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.preconditions import are_static_members_refused
from engine.broker.handlers.registry import handles_plain
from engine.broker.network.request import Deferred, EncodedAnswer
from engine.common.errors import ErrorCode, RemoteProtocolError
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from engine.kafka.protocol.codec import Outgoing, decoder, encoder

FIRST_VERSION: Final = 8
"""The versions before it have other forms of strings."""

_PARTITION: Final = "iqixx"
"""Index, offset, leader epoch, the length of a text, the number of tagged fields."""

_SIZE: Final = struct.calcsize(">" + _PARTITION)
_TEXT, _TAGS = _SIZE - 2, _SIZE - 1
_NO_TAGS: Final = b"\0\0"
"""Of the topic, and of the request."""

_NO_TEXT: Final = b"\0\1"
"""The first byte of a text that is null, and that of an empty one."""

_GENERATION = struct.Struct(">i")
_ONE_BYTE_MAX: Final = 127
_ONE_TOPIC: Final = b"\2"


@handles_plain(ApiKey.OFFSET_COMMIT)
def plain_commit(context: RequestContext, frame: memoryview, position: int) -> Deferred | None:
    """Store a group's offsets; None if the request is not of the usual form, or may be refused."""
    if context.api_version < FIRST_VERSION:
        return None
    broker = context.broker
    commits = broker.group_coordinator.offsets
    data = bytes(frame[position:])
    try:
        # Behind the ids of group, member and instance, and the topic's name. No form has a length of two bytes.
        start = data[0] + 4
        start += data[start]
        start += (data[start] or 1) + 1
        start += data[start]
        count = data[start] - 1
        start += 1
        values = _unpacker(count)(data, start)
    except (IndexError, struct.error):
        return None
    end = start + count * _SIZE
    if (
        data[end:] != _NO_TAGS
        or data[start + _TEXT : end : _SIZE].strip(_NO_TEXT)
        or data[start + _TAGS : end : _SIZE].strip(b"\0")
    ):
        return None
    head, indexes = data[:start], values[::3]
    form = commits.forms.get(head)
    if type(form) is not CommitForm or form.indexes != indexes:
        form = _new_form(context, commits.forms, data, head, indexes)
        if form is None:
            return None
    mark = broker.metadata_cache.snapshot.mark
    if form.known_in is not mark:
        if not all(map(broker.metadata_cache.contains, form.partitions)):
            return None
        form.known_in, form.home = mark, None
    answer = commits.commit_in_form(form, values[1::3], values[2::3])
    if answer is not None:
        context.session.note_commit(answer)
    return answer


@lru_cache(maxsize=_ONE_BYTE_MAX)
def _unpacker(count: int) -> Callable[[bytes, int], tuple[int, ...]]:
    return struct.Struct(">" + count * _PARTITION).unpack_from


def _new_form(
    context: RequestContext, forms: CommitForms, data: bytes, head: bytes, indexes: tuple[int, ...]
) -> CommitForm | None:
    """Return the form of commits that begin with ``head``, from the second one of the same partitions on."""
    if forms.get(head) != indexes:
        # Some clients commit only what has changed, and other partitions each time: to make forms would cost more.
        forms.put(head, indexes)
        return None
    try:
        request = decoder(OffsetCommitRequest, context.api_version)(data, 0)[0]
    except RemoteProtocolError:
        # The same happens on the handler's way, where the peer is blamed for it.
        return None
    if (
        len(request.topics) != 1
        or head != _head_of(request)
        or not 0 < len(indexes) == len(set(indexes))
        or context.broker.config.inter_broker_protocol_version < FIRST_PLAIN
        or are_static_members_refused(context, request.group_instance_id)
    ):
        return None
    topic = request.topics[0].name
    form = CommitForm(
        request.group_id,
        Committer(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id),
        [TopicPartition(topic, index) for index in indexes],
        partial(_answer, topic, indexes),
    )
    forms.put(head, form)
    return form


def _head_of(request: OffsetCommitRequest) -> bytes | None:
    """Return the bytes before the offsets; None if a length takes more than one."""
    topic = request.topics[0]
    group, member, name = (text.encode() for text in (request.group_id, request.member_id, topic.name))
    instance = None if request.group_instance_id is None else request.group_instance_id.encode()
    if max(map(len, (group, member, name, instance or b"", topic.partitions))) >= _ONE_BYTE_MAX:
        return None
    generation = _GENERATION.pack(request.generation_id_or_member_epoch)
    sized = (b"\0" if part is None else bytes([len(part) + 1]) + part for part in (group, member, instance, name))
    group, member, instance, name = sized
    return b"".join((group, generation, member, instance, _ONE_TOPIC, name, bytes([len(topic.partitions) + 1])))


def _answer(topic: str, indexes: Iterable[int], error: ErrorCode) -> EncodedAnswer:
    """Return the answer with one error for all partitions, which is the same in all versions that have forms."""
    partitions = [OffsetCommitResponsePartition(partition_index=index, error_code=error) for index in indexes]
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=topic, partitions=partitions)])
    out = Outgoing()
    encoder(OffsetCommitResponse, FIRST_VERSION)(out, response)
    return EncodedAnswer(bytes(out), error, len(partitions))
