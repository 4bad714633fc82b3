"""The envelope of a line in ``state-change.log``: time, level, writer and message.

``[2015-03-01 10:00:00,123] TRACE [Controller id=1 epoch=3] Changed partition … (state.change.logger)`` since Kafka 1.0;
``Controller 1 epoch 3 changed …`` and ``Broker 2 handling …`` before. An *entry* is such a line with the lines that
belong to it: a stack trace, or the rest of a wrapped message. ``state_change_sentences`` knows what the sentences
mean, and which partitions they name.

Everything here works on bytes, many lines at a time where it can: logs are large.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

START_BYTES = 25
"""The length of the ``[yyyy-MM-dd HH:mm:ss,SSS]`` that begins every entry; as bytes it sorts by time."""

_HEAD_BYTES = 60
"""Level and writer's id are within this many bytes."""

_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_START_SHAPE = b"[0000-00-00 00:00:00,000]"
_LOGGER = b" (state.change.logger)"

start_of = itemgetter(slice(0, START_BYTES))
"""Returns the first bytes of a line: its timestamp, if it has one."""
head_of = itemgetter(slice(START_BYTES, _HEAD_BYTES))
"""Returns what follows the time: level and writer. Many lines share few different ones."""

_HEAD = re.compile(
    rb" +(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) +"
    rb"(?:\[(?:Broker|Controller) id=(\d{1,10})\b|(?:Broker|Controller|Error on broker) (\d{1,10}) )?"
)
_WRITER = re.compile(
    rb" +(TRACE|DEBUG|INFO|WARN|ERROR|FATAL) +"
    rb"(?:\[(?:Broker|(Controller)) id=(\d{1,10})(?: epoch=(\d{1,10}))?\] "
    rb"|(?:Broker|(Controller)) (\d{1,10})(?: epoch (\d{1,10}))? "
    rb"|(?=Error on broker (\d{1,10}) ))?"
)
_EPOCH_IN_MESSAGE = re.compile(rb"controller \d{1,10} epoch (\d{1,10})|[cC]ontrollerEpoch[=:](\d{1,10})")
_MERGED_PREFIX = re.compile(rb"^(?:[^\s|]*[-_.])?(?:\d{1,10}|\?) *\| ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Head:
    """What the first bytes of an entry show."""

    has_level: bool
    broker_id: int | None


class StateChangeLine(NamedTuple):
    """One parsed entry. ``message`` has no envelope; further lines follow after line feeds.

    ``broker_id`` is the process's, even if it writes as the controller; then ``controller_epoch`` is its own. It is a
    tuple because there are millions of them.
    """

    start: bytes
    level: str
    broker_id: int | None
    is_controller: bool
    controller_epoch: int | None
    message: bytes


def are_starts(starts: Sequence[bytes]) -> bool:
    """Return whether all of them are timestamps, with one comparison for all."""
    return b"".join(starts).translate(_DIGITS_TO_ZERO) == _START_SHAPE * len(starts)


def is_start(line: bytes) -> bool:
    """Return whether a line begins an entry."""
    return line[:START_BYTES].translate(_DIGITS_TO_ZERO) == _START_SHAPE


def parse_head(head: bytes) -> Head:
    """Parse the first bytes after an entry's time."""
    match = _HEAD.match(head)
    if match is None:
        return Head(False, None)
    broker_id = match[1] or match[2]
    return Head(True, None if broker_id is None else int(broker_id))


def parse_entry(entry: bytes) -> StateChangeLine | None:
    """Parse an entry; None if it has no envelope."""
    match = _WRITER.match(entry, START_BYTES) if is_start(entry) else None
    if match is None:
        return None
    level, new_controller, new_id, new_epoch, old_controller, old_id, old_epoch, error_id = match.groups()
    broker_id, epoch = new_id or old_id or error_id, new_epoch or old_epoch
    message = _without_logger(entry[match.end() :])
    return StateChangeLine(
        start_of(entry),
        level.decode("ascii"),
        None if broker_id is None else int(broker_id),
        bool(new_controller or old_controller),
        None if epoch is None else int(epoch),
        message,
    )


def controller_epoch_in(message: bytes) -> int | None:
    """Return the epoch of the controller whose request a message concerns; None if it names none."""
    match = _EPOCH_IN_MESSAGE.search(message)
    return None if match is None else int(match[1] or match[2])


def is_merged_line(line: bytes) -> bool:
    """Return whether a line comes from a merge: its source comes before its time, as in ``broker-2 | [2015-…``."""
    match = _MERGED_PREFIX.match(line)
    return match is not None and is_start(line[match.end() :])


def without_merged_prefixes(text: bytes) -> bytes:
    """Return merged lines as they were before the merge."""
    return _MERGED_PREFIX.sub(b"", text)


def _without_logger(message: bytes) -> bytes:
    if message.endswith(_LOGGER):
        return message[: -len(_LOGGER)]
    if message.endswith(b"\r") or b"\r\n" in message:
        return _without_logger(message.replace(b"\r\n", b"\n").rstrip(b"\r"))
    return message.replace(_LOGGER + b"\n", b"\n", 1)
