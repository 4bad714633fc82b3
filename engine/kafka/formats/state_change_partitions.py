"""Finds the partitions that a line of ``state-change.log`` names, in every spelling since Kafka 0.8.2.

The spellings are ``[t,0]`` until 0.11, ``t-0`` since, ``topicName='t', partitionIndex=0`` inside requests since 2.4,
and the older form of printed answers. A topic's name may contain dots, hyphens and digits, so the last hyphen counts.
Lists of brokers such as ``isr=[0, 1]`` only look like the old spelling, as dates and epochs look like the new one.
"""

from __future__ import annotations

import re

from engine.common.model import TopicPartition

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
