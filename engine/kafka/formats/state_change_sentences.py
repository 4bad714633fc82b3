"""Reads the event in a line of ``state-change.log``, and the partitions that it names, since Kafka 0.8.2.

The wordings differ little: capitals and brackets came with 1.0, summaries per request with 2.6. Lines that say
nothing about a partition or a request (``Stopped fetchers …``, ``Finished LeaderAndIsr request …``) have no event.

Partitions are ``[t,0]`` until 0.11, ``t-0`` since, ``topicName='t', partitionIndex=0`` inside requests since 2.4, and
the older form of printed answers. A topic's name may contain dots, hyphens and digits, so the last hyphen counts. Lists
of brokers such as ``isr=[0, 1]`` only look like the old spelling, as dates and epochs look like the new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from engine.common.model import LEADER_DURING_DELETE, TopicPartition
from engine.kafka.formats.state_change_events import (
    Event,
    LeaderElected,
    MoveFailed,
    OldController,
    PartitionDeleted,
    PartitionHandled,
    PartitionMoved,
    PartitionSent,
    PartitionsForgotten,
    Reassigned,
    Refusal,
    Refused,
    ReplicaAsBefore,
    ReplicasOffline,
    RequestHandled,
    RequestKind,
    RequestSent,
    RoleStarted,
    StateRole,
    StateSeen,
    UncleanlyElected,
    broker_ids,
    state_in,
)
from engine.kafka.formats.state_change_lines import StateChangeLine

_NAME = rb"[A-Za-z0-9._-]{1,249}"
_END = rb"(?=[\s,;:)\]'=]|\.(?:\s|$)|$)"

_HYPHENATED = re.compile(rb"(" + _NAME + rb")-(\d{1,10})" + _END)
_AFTER_THE_WORD = re.compile(rb"(" + _NAME + rb")-(\d{1,10})" + _END + rb"|\[(" + _NAME + rb"), *(\d{1,10})\]")
_AFTER_A_WORD = re.compile(
    rb"\b(?:[Pp]artition|reassigned|[Ll]eader|[Ff]ollower|for|fetching|replicas?|expected)\s+("
    + _NAME
    + rb")-(\d{1,10})"
    + _END
)
_LIST = re.compile(rb"(?:Mark replicas |Set\(|Map\(|List\(|responses=\{)([^)}]*)")
_LIST_ITEM = re.compile(rb"(?:^|[,(] ?)(" + _NAME + rb")-(\d{1,10})" + _END)
_BRACKETED = re.compile(rb"(?<=[(,\s])[\[(](" + _NAME + rb"), *(\d{1,10})[\])]")
_STRUCTURED = re.compile(
    rb"topicName='(" + _NAME + rb")', partitionIndex=(\d{1,10})"
    rb"|[\[{(][Tt]opic=(" + _NAME + rb"), ?[Pp]artition=(\d{1,10})"
)
_PARTITION_WORDS = (b"partition", b"reassigned")
_ROLES = ((b"Leader ", 7), (b"Follower ", 9))
_NAMING_MANY = (b"Mark replicas", b"Received response", b"received response", b"Received error")


def partitions_in(message: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions that a message names, each once, in the order of first mention."""
    if not message.startswith(_NAMING_MANY):
        only = first_partition_in(message)
        if only is not None:
            return (only,)
    names: dict[tuple[bytes, bytes], None] = dict.fromkeys(_AFTER_A_WORD.findall(message))
    for listed in _LIST.findall(message):
        names.update(dict.fromkeys(_LIST_ITEM.findall(listed)))
    for new_name, new_index, old_name, old_index in _STRUCTURED.findall(message):
        names[(new_name or old_name, new_index or old_index)] = None
    names.update(dict.fromkeys(_bracketed(message)))
    return tuple(TopicPartition(name.decode("ascii"), int(index)) for name, index in names)


def first_partition_in(message: bytes) -> TopicPartition | None:
    """Return the partition that a message is about, or None if it is in neither of the two usual places.

    These are after the role and after the word partition; looking only there is ten times as fast.
    """
    for word, length in _ROLES:
        if message.startswith(word) and (match := _HYPHENATED.match(message, length)) is not None:
            return TopicPartition(match[1].decode("ascii"), int(match[2]))
    at = message.find(b"artition ")
    while at >= 0:
        match = _AFTER_THE_WORD.match(message, at + len(b"artition "))
        if match is not None:
            return TopicPartition((match[1] or match[3]).decode("ascii"), int(match[2] or match[4]))
        at = message.find(b"artition ", at + 1)
    return None


def mention_of(topic: bytes) -> re.Pattern[bytes]:
    """Return a pattern for a line's mention of a partition of ``topic``; one of its groups has the number.

    Match it at the topic's name, which a plain search finds much faster than a pattern would.
    """
    name = re.escape(topic)
    # A name of only digits looks like a broker in a list of brokers.
    before_comma = rb"(?:(?<=partition [\[(])|(?<=reassigned [\[(]))" if topic.isdigit() else rb"(?<=[\[(])"
    return re.compile(
        rb"(?<![A-Za-z0-9._-])" + name + rb"-(\d{1,10})" + _END + rb"|" + before_comma + name + rb", *(\d{1,10})[\])]"
        rb"|(?<=topicName=')" + name + rb"', partitionIndex=(\d{1,10})"
        rb"|(?<=[Tt]opic=)" + name + rb", ?[Pp]artition=(\d{1,10})"
    )


def _bracketed(message: bytes) -> list[tuple[bytes, bytes]]:
    """Find ``[t,0]``. A name of only digits counts only right after the word partition: ``[0, 1]`` are brokers."""
    return [
        (match[1], match[2])
        for match in _BRACKETED.finditer(message)
        if not match[1].isdigit() or message[: match.start()].rstrip().endswith(_PARTITION_WORDS)
    ]


Found = Iterable[Event]

_MOVED = re.compile(r"(?:state )?from (\w+) to (\w+)")
_FAILED_MOVE = re.compile(r" from (\w+) to (\w+)( failed)?")
_WITH_LEADER = re.compile(r"with leader (-?\d{1,10})\s*$")
_STARTS = re.compile(
    r"(Leader|Follower) \S+ (?:with topic id \S+ )?starts at leader epoch (-?\d{1,10})"
    r"(?:.*?with partition epoch (-?\d{1,10}))?(?:.*?ISR \[([\d, ]*)\])?"
)
_CHANGING = re.compile(r"adding ?[rR]eplicas \[([\d, ]*)\] (?:and )?removing ?[rR]eplicas \[([\d, ]*)\]")
_ASSIGNMENT = re.compile(r"\(replicas=([\d, ]*), addingReplicas=([\d,]*), removingReplicas=([\d,]*)\)")
_ASSIGNED_LIST = re.compile(r"new assigned replica list ([\d, ]+) to leader")
_TO_BROKER = re.compile(r"to broker (\d{1,10})\b")
_SENT_LEADER_AND_ISR = re.compile(r"to broker (\d{1,10}) with (\d{1,10}) become-leader and (\d{1,10}) become-follower")
_SENT_STOP_REPLICA = re.compile(r"for (\d{1,10}) replicas to broker (\d{1,10})")
_HANDLING = re.compile(
    r"(LeaderAndIsr|StopReplica) request correlationId \d{1,10} from controller (\d{1,10}) for (\d{1,10}) partitions"
)
_OLD_CONTROLLER = re.compile(
    r"(?:controller (\d{1,10})\b.*?)?controller epoch (\d{1,10})(?: is old)?\. "
    r"Latest known controller epoch is (?:%d )?(\d{1,10})"
    r"|old controller (\d{1,10}) with epoch (\d{1,10})\. Latest known controller epoch is (\d{1,10})"
)
_OLD_LEADER_EPOCH = re.compile(r"leader epoch (-?\d{1,10}) is (?:old|smaller|not higher)\D+(-?\d{1,10})")
_OFFLINE_DIR = ("offline log directory", "due to storage", "storage error", "offline due to disk error")
_FORGOTTEN = re.compile(r"deleted (\d{1,10}) partitions from metadata cache")
_ON_BROKER = re.compile(r"on broker (\d{1,10}) as offline")


def events_of(line: StateChangeLine) -> Found:
    """Return the events in a line; nothing if it has none."""
    if b"\n" in line.message:
        # A wrapped message becomes whole again; a stack trace adds nothing to its message.
        line = line._replace(message=line.message.replace(b"\n", b" "))
    text = line.message.decode("utf-8", "replace")
    word = text.partition(" ")[0].lower()
    reader = _READERS.get(word)
    return () if reader is None else reader(line, text)


def _one_partition(line: StateChangeLine) -> TopicPartition | None:
    partitions = partitions_in(line.message)
    return partitions[0] if partitions else None


def _changed(line: StateChangeLine, text: str) -> Found:
    """``Changed partition …``; changes of replicas add nothing to the partition's own lines."""
    if not text.startswith("partition", 8):
        return
    partition, move = _one_partition(line), _MOVED.search(text)
    if partition is None or move is None:
        return
    yield PartitionMoved(partition, move[1], move[2])
    state = state_in(text)
    if state is not None:
        yield StateSeen(partition, state, StateRole.DECIDED, move[1])
    elif (leader := _WITH_LEADER.search(text)) is not None:
        yield LeaderElected(partition, int(leader[1]))


def _partition(line: StateChangeLine, text: str) -> Found:
    """``Partition t-0 state changed to (…) after removing replica 2 from the ISR …``."""
    partition, state = _one_partition(line), state_in(text)
    if partition is not None and state is not None:
        yield StateSeen(partition, state, StateRole.DECIDED)


def _sending(line: StateChangeLine, text: str) -> Found:
    """One partition of a request, or the request's summary."""
    partition = _one_partition(line)
    if partition is None:
        yield from _request_sent(text)
        return
    state, broker = state_in(text), _TO_BROKER.search(text)
    if "StopReplica" in text:
        if broker is not None:
            yield PartitionSent(RequestKind.STOP_REPLICA, int(broker[1]), partition, None)
        return
    if state is not None and state.leader != LEADER_DURING_DELETE:
        yield StateSeen(partition, state, StateRole.SENT)
    if "LeaderAndIsr request" in text and broker is not None:
        yield PartitionSent(
            RequestKind.LEADER_AND_ISR, int(broker[1]), partition, None if state is None else state.leader_epoch
        )


def _request_sent(text: str) -> Found:
    if (match := _SENT_LEADER_AND_ISR.search(text)) is not None:
        yield RequestSent(RequestKind.LEADER_AND_ISR, int(match[1]), int(match[2]) + int(match[3]))
    elif "StopReplica" in text and (match := _SENT_STOP_REPLICA.search(text)) is not None:
        yield RequestSent(RequestKind.STOP_REPLICA, int(match[2]), int(match[1]))


def _sent(line: StateChangeLine, text: str) -> Found:
    """``Sent LeaderAndIsr request (…) with new replica assignment … being reassigned t-0``."""
    partition, state = _one_partition(line), state_in(text)
    if partition is None or state is None:
        return
    if (match := _ASSIGNMENT.search(text)) is not None:
        replicas, adding, removing = map(broker_ids, match.groups())
        targets = tuple(broker for broker in replicas if broker not in removing)
        yield Reassigned(partition, adding, removing, targets)
    elif (match := _ASSIGNED_LIST.search(text)) is not None:
        yield Reassigned(partition, (), (), broker_ids(match[1]))
    yield StateSeen(partition, state, StateRole.DECIDED)


def _starts(line: StateChangeLine, text: str) -> Found:
    match, partition = _STARTS.match(text), _one_partition(line)
    if match is None or partition is None:
        return
    role, leader_epoch, partition_epoch, isr = match.groups()
    if (change := _CHANGING.search(text)) is not None and any(change.groups()):
        yield Reassigned(partition, broker_ids(change[1]), broker_ids(change[2]))
    yield RoleStarted(
        partition,
        role == "Leader",
        int(leader_epoch),
        int(partition_epoch) if partition_epoch is not None else None,
        broker_ids(isr) if isr is not None else None,
        "(under-min-isr)" in text,
    )
    yield PartitionHandled(RequestKind.LEADER_AND_ISR, partition, int(leader_epoch))


def _received(line: StateChangeLine, text: str) -> Found:
    """A request's partition, or an old or unfollowable request."""
    if "Latest known controller epoch" in text:
        yield from _old_controller(text)
        return
    if text.startswith("response", 9) or (partition := _one_partition(line)) is None:
        return
    if "StopReplica" in text:
        yield PartitionHandled(RequestKind.STOP_REPLICA, partition, None)
        return
    state = state_in(text)
    yield PartitionHandled(RequestKind.LEADER_AND_ISR, partition, None if state is None else state.leader_epoch)
    if state is not None:
        yield StateSeen(partition, state, StateRole.RECEIVED)
    if "is unavailable" in text:
        yield Refused(partition, Refusal.LEADER_UNAVAILABLE)


def _handling(line: StateChangeLine, text: str) -> Found:
    if (match := _HANDLING.search(text)) is not None:
        yield RequestHandled(RequestKind(match[1]), int(match[2]), int(match[3]))
        return
    partition = _one_partition(line)
    if partition is not None:
        is_stop = "stop replica" in text or "StopReplica" in text
        yield PartitionHandled(RequestKind.STOP_REPLICA if is_stop else RequestKind.LEADER_AND_ISR, partition, None)


def _ignoring(line: StateChangeLine, text: str) -> Found:
    if "Latest known controller epoch" in text:
        yield from _old_controller(text)
        return
    partition = _one_partition(line)
    if partition is None:
        return
    is_stop = "StopReplica" in text or "stop replica" in text
    yield PartitionHandled(RequestKind.STOP_REPLICA if is_stop else RequestKind.LEADER_AND_ISR, partition, None)
    if any(words in text for words in _OFFLINE_DIR):
        yield Refused(partition, Refusal.OFFLINE_LOG_DIR)
    elif "not in assigned replica list" in text:
        yield Refused(partition, Refusal.NOT_A_REPLICA)
    elif (match := _OLD_LEADER_EPOCH.search(text)) is not None and int(match[1]) < int(match[2]):
        yield Refused(partition, Refusal.OLD_LEADER_EPOCH)


def _old_controller(text: str) -> Found:
    match = _OLD_CONTROLLER.search(text)
    if match is None:
        return
    controller_id, seen, latest = match[1] or match[4], match[2] or match[5], match[3] or match[6]
    yield OldController(int(controller_id) if controller_id else None, int(seen), int(latest))


def _cached(line: StateChangeLine, text: str) -> Found:
    partition, state = _one_partition(line), state_in(text)
    if partition is not None and state is not None:
        if state.leader == LEADER_DURING_DELETE:
            yield PartitionDeleted(partition)
        else:
            yield StateSeen(partition, state, StateRole.CACHED)


def _deleted(line: StateChangeLine, text: str) -> Found:
    partition = _one_partition(line)
    if partition is not None and "from metadata cache" in text:
        yield PartitionDeleted(partition)


def _skipped(line: StateChangeLine, text: str) -> Found:
    partition = _one_partition(line)
    if partition is None:
        return
    yield PartitionHandled(RequestKind.LEADER_AND_ISR, partition, None)
    if any(words in text for words in _OFFLINE_DIR):
        yield Refused(partition, Refusal.OFFLINE_LOG_DIR)


def _completed(line: StateChangeLine, text: str) -> Found:
    partition = _one_partition(line)
    if partition is not None:
        yield PartitionHandled(RequestKind.LEADER_AND_ISR, partition, None)


def _failed(line: StateChangeLine, text: str) -> Found:
    """``Controller 1 epoch 3 failed to change state …`` or ``initiated state change for partition … failed``."""
    partition, move = _one_partition(line), _FAILED_MOVE.search(text)
    if partition is None or move is None:
        return
    if "of replica" not in text:
        yield MoveFailed(partition, move[1], move[2])
    elif move[1] == move[2]:
        yield ReplicaAsBefore(partition)


def _the(line: StateChangeLine, text: str) -> Found:
    partition = _one_partition(line)
    if partition is not None and "was marked as RECOVERING" in text:
        yield UncleanlyElected(partition)


def _add(line: StateChangeLine, text: str) -> Found:
    """``Add 7 partitions and deleted 2 partitions from metadata cache …``."""
    match = _FORGOTTEN.search(text)
    if match is not None and int(match[1]):
        yield PartitionsForgotten(int(match[1]))


def _mark(line: StateChangeLine, text: str) -> Found:
    broker = _ON_BROKER.search(text)
    if broker is not None:
        yield ReplicasOffline(int(broker[1]), partitions_in(line.message))


_READERS: dict[str, Callable[[StateChangeLine, str], Found]] = {
    "changed": _changed,
    "partition": _partition,
    "sending": _sending,
    "sent": _sent,
    "leader": _starts,
    "follower": _starts,
    "received": _received,
    "handling": _handling,
    "ignoring": _ignoring,
    "cached": _cached,
    "deleted": _deleted,
    "skipped": _skipped,
    "completed": _completed,
    "controller": _failed,
    "initiated": _failed,
    "encountered": _failed,
    "the": _the,
    "add": _add,
    "mark": _mark,
}
