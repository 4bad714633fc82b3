"""The envelope of a line in ``state-change.log``: when, how grave, who wrote it, and what it says.

``[2015-03-01 10:00:00,123] TRACE [Controller id=1 epoch=3] Changed partition … (state.change.logger)`` since Kafka 1.0;
``Controller 1 epoch 3 changed …`` and ``Broker 2 handling …`` before. An *entry* is such a line with the lines that
belong to it: a stack trace, or the rest of a message that wraps. What the sentences mean is the business of
``state_change_events``, which partitions they name that of ``state_change_partitions``.

Everything here works on bytes, many lines at a time where it can: logs are large.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

START_BYTES = 25
"""So long is the ``[yyyy-MM-dd HH:mm:ss,SSS]`` that begins every entry; as bytes it sorts by time."""

HEAD_BYTES = 60
"""Level and writer stand within so many bytes."""

_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_START_SHAPE = b"[0000-00-00 00:00:00,000]"
_LOGGER = b" (state.change.logger)"

_START = itemgetter(slice(0, START_BYTES))
_HEAD = itemgetter(slice(START_BYTES, HEAD_BYTES))
_WRITER = re.compile(
    rb" +(TRACE|DEBUG|INFO|WARN|ERROR|FATAL) +"
    rb"(?:\[(?:Broker|(Controller)) id=(\d{1,10})(?: epoch=(\d{1,10}))?\] "
    rb"|(?:Broker|(Controller)) (\d{1,10})(?: epoch (\d{1,10}))? "
    rb"|(?=Error on broker (\d{1,10}) ))?"
)
_EPOCH_IN_MESSAGE = re.compile(rb"controller \d{1,10} epoch (\d{1,10})|[cC]ontrollerEpoch[=:](\d{1,10})")
_FOREIGN_PREFIX = re.compile(rb"(?:\S*?[-_.])?(\d{1,10}|\?) *\| (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote an entry. ``broker_id`` is the process's, also where it writes as the controller."""

    level: str
    broker_id: int | None
    is_controller: bool
    controller_epoch: int | None
    length_bytes: int
    """So much of the entry, from its start's end on, is not message."""


@dataclass(frozen=True, slots=True)
class StateChangeLine:
    """One entry taken apart. ``message`` has no envelope; further lines follow after line feeds."""

    start: bytes
    level: str
    broker_id: int | None
    is_controller: bool
    controller_epoch: int | None
    message: bytes


def starts_of(lines: Sequence[bytes]) -> list[bytes]:
    """Return the first bytes of each line: its time, where it has one."""
    return list(map(_START, lines))


def are_starts(starts: Sequence[bytes]) -> bool:
    """Whether every one of them is a time. One comparison for all."""
    return b"".join(starts).translate(_DIGITS_TO_ZERO) == _START_SHAPE * len(starts)


def is_start(line: bytes) -> bool:
    """Whether a line begins an entry."""
    return line[:START_BYTES].translate(_DIGITS_TO_ZERO) == _START_SHAPE


def heads_of(lines: Sequence[bytes]) -> set[bytes]:
    """Return the different beginnings after the time: few among many lines, and they tell level and writer."""
    return set(map(_HEAD, lines))


def parse_head(head: bytes) -> Writer | None:
    """Return level and writer from what follows an entry's time; None where no level stands there."""
    match = _WRITER.match(head)
    if match is None:
        return None
    level, new_controller, new_id, new_epoch, old_controller, old_id, old_epoch, error_id = match.groups()
    broker_id = new_id or old_id or error_id
    epoch = new_epoch or old_epoch
    return Writer(
        level.decode("ascii"),
        int(broker_id) if broker_id else None,
        bool(new_controller or old_controller),
        int(epoch) if epoch else None,
        match.end(),
    )


def parse_entry(entry: bytes) -> StateChangeLine | None:
    """Take an entry apart; None where it has no envelope."""
    writer = parse_head(entry[START_BYTES:]) if is_start(entry) else None
    if writer is None:
        return None
    message = entry[START_BYTES + writer.length_bytes :]
    if b"\r" in message:
        message = message.replace(b"\r\n", b"\n").rstrip(b"\r")
    if message.endswith(_LOGGER):
        message = message[: -len(_LOGGER)]
    elif b"\n" in message:
        message = message.replace(_LOGGER + b"\n", b"\n", 1)
    epoch = writer.controller_epoch
    if epoch is None:
        epoch = controller_epoch_in(message)
    return StateChangeLine(entry[:START_BYTES], writer.level, writer.broker_id, writer.is_controller, epoch, message)


def controller_epoch_in(message: bytes) -> int | None:
    """Return the epoch of the controller that a message is about, or None where it names none."""
    match = _EPOCH_IN_MESSAGE.search(message)
    return None if match is None else int(match[1] or match[2])


def split_foreign_prefix(line: bytes) -> tuple[int | None, bytes] | None:
    """Return broker and the original line of one that was merged before: ``broker-2 | [2015-…``; else None."""
    match = _FOREIGN_PREFIX.match(line)
    if match is None:
        return None
    return (int(match[1]) if match[1] != b"?" else None), match[2]
