"""Reads one log entry by entry, many at a time: blocks of starts, tags and entries in time order.

An entry is a line that begins with a time, and all lines after it that do not. A *tag* is what the caller wants to
know about an entry apart from its text: the broker that wrote it, or a prefix made of that. The reader handles a whole
block at once wherever possible; one line at a time costs ten times as much.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import gt
from typing import Generic, TypeVar

from engine.admin.state_changes.log_files import LogFile, open_log
from engine.admin.state_changes.log_input import DamagedLog, ProblemCounter, ProblemKind
from engine.admin.state_changes.selection import Selection
from engine.admin.state_changes.zones import UtcClock
from engine.kafka.formats.state_change_lines import (
    START_BYTES,
    Head,
    are_starts,
    head_of,
    is_start,
    parse_head,
    start_of,
    without_merged_prefixes,
)

Tag = TypeVar("Tag")
TagOf = Callable[[LogFile, int | None], Tag]
"""Makes the tag of the entries that one broker wrote into a log."""

_BLOCK_BYTES = 200_000
"""A block is complete once its entries come from this much of the log."""
_CHUNKS_PER_BLOCK_MAX = 128
"""After this many records without a match, the caller can report its progress."""
_BURST = re.compile(
    rb"(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]).*"
    # A line of the same time that has a level, or one without a time.
    rb"(?:\n(?:\1 [A-Z]{4,5} |(?!\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\])).*)*"
)
_OF_ANOTHER_LAYOUT = re.compile(
    rb"\n(?!\[\d{4}-)[^\n]{0,40}\d\d:\d\d:\d\d[^\n]{0,40}\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b"
)
"""A line with a time and a level of its own, which is no continuation."""
_LINES_PER_BURST_MIN = 2
"""If there are fewer on average, line by line is faster."""
_ENTRY_BYTES_MAX = 8 << 20
"""A longer run of lines without a time is cut; what comes after the cut follows directly."""


@dataclass(slots=True)
class Block(Generic[Tag]):
    """Entries in time order; those of the same millisecond in the log's order."""

    begins_at: bytes
    """The earliest time in the part of the log that was read, even if none of it was wanted."""
    starts: list[bytes] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    has_continuations: bool = False

    def put_in_order(self) -> None:
        """Sort by time; entries of the same millisecond keep their order."""
        order = sorted(range(len(self.starts)), key=self.starts.__getitem__)
        self.starts = list(map(self.starts.__getitem__, order))
        self.tags = list(map(self.tags.__getitem__, order))
        self.entries = list(map(self.entries.__getitem__, order))


class EntryReader(Generic[Tag]):
    """Reads the wanted entries of one log. ``lead_start`` is the time for leading lines that have none.

    If one broker wrote the log, ``in_bursts`` returns entries of the same millisecond as one, in order: that is enough
    for text, and if there are many it takes half the time.
    """

    def __init__(
        self,
        file: LogFile,
        tag_of: TagOf[Tag],
        selection: Selection,
        problems: ProblemCounter,
        *,
        chunk_bytes: int,
        clock: UtcClock | None = None,
        lead_start: bytes | None = None,
        in_bursts: bool = False,
    ) -> None:
        self._file = file
        self._in_bursts = in_bursts and not selection.topics
        self._has_bursts = False
        self._tag_of = tag_of
        self._selection = selection
        self._mentions = selection.mentions
        self._reads_from, self._reads_to = selection.reads_from, selection.reads_to
        self._problems = problems
        self._clock = clock
        self._input = open_log(file, chunk_bytes)
        self._rest = b""
        self._prefixed_rest = b""
        self._last_start = lead_start or file.first_start
        self._heads: dict[bytes, Head] = {}
        self._has_many_writers = file.broker_id is None
        self._has_unparsed = False
        self._tag_by_broker: dict[int | None, Tag] = {}
        self._is_at_end = False

    @property
    def consumed_bytes(self) -> int:
        """How many bytes of the file were read."""
        return self._input.consumed_bytes

    def close(self) -> None:
        """Close the log, read to its end or not."""
        self._input.close()

    def read(self) -> Block[Tag] | None:
        """Return the next entries, perhaps none of them wanted; None at the end of the log."""
        if self._is_at_end:
            return None
        begins_at: bytes | None = None
        lines: list[bytes] = []
        size_bytes = 0
        for _ in range(_CHUNKS_PER_BLOCK_MAX):
            text = self._next_text()
            if text is not None:
                if begins_at is None:
                    begins_at = self._own_start(start_of(text)) if is_start(text) else self._last_start
                wanted = self._wanted_lines(text)
                lines += wanted
                size_bytes += len(text) if wanted else 0
            if self._is_at_end or size_bytes >= _BLOCK_BYTES:
                break
        block = self._block(begins_at or self._last_start, lines)
        if self._reads_to is not None and block.begins_at > self._reads_to:
            self._is_at_end = True
            self.close()
        return block

    def _next_text(self) -> bytes | None:
        """Return whole entries without the last line feed; None if the next entry is not whole yet."""
        chunk = self._next_chunk()
        if not chunk:
            self._is_at_end = True
            text, self._rest = self._rest + without_merged_prefixes(self._prefixed_rest), b""
            return text.removesuffix(b"\n") if text else None
        if self._file.is_merged:
            chunk = self._prefixed_rest + chunk
            end = chunk.rfind(b"\n") + 1
            chunk, self._prefixed_rest = without_merged_prefixes(chunk[:end]), chunk[end:]
        text = self._rest + chunk
        end = _last_boundary(text)
        if end < 0:
            if len(text) < _ENTRY_BYTES_MAX:
                self._rest = text
                return None
            end = max(text.rfind(b"\n"), 0) or len(text)
        self._rest = text[end + 1 :]
        return text[:end]

    def _next_chunk(self) -> bytes:
        try:
            chunk = self._input.read()
        except DamagedLog as error:
            self._problems.tell(ProblemKind.DAMAGED, f"{error}; the result contains what comes before that")
            self.close()
            return b""
        except OSError as error:
            self._problems.tell(ProblemKind.UNREADABLE, f"cannot be read on: {(error.strerror or str(error)).lower()}")
            self.close()
            return b""
        if b"\0" in chunk:
            self._problems.count(ProblemKind.ZERO_BYTES, chunk.count(b"\0"))
            return chunk.replace(b"\0", b"") or self._next_chunk()
        return chunk

    def _wanted_lines(self, text: bytes) -> list[bytes]:
        """Return the lines of a text that can be wanted; where topics are wanted, each entry as one."""
        self._problems.count(ProblemKind.OTHER_LAYOUT, len(_OF_ANOTHER_LAYOUT.findall(text)))
        if self._reads_from is not None and self._own_start(_last_start_in(text)) < self._reads_from:
            return []
        if self._mentions:
            return self._entries_about_topics(text)
        if self._in_bursts and not self._has_many_writers:
            bursts = [match[0] for match in _BURST.finditer(text)]
            self._in_bursts = line_count(text) >= _LINES_PER_BURST_MIN * len(bursts)
            if sum(map(len, bursts)) + len(bursts) - 1 == len(text):
                self._has_bursts = True
                return bursts
        return text.split(b"\n")

    def _own_start(self, start: bytes) -> bytes:
        return start if self._clock is None else self._clock.starts([start])[0]

    def _entries_about_topics(self, text: bytes) -> list[bytes]:
        """Return the entries that name a wanted partition, each as one item."""
        by_position: dict[int, bytes] = {}
        for topic, mention in self._mentions:
            at = text.find(topic)
            while at >= 0:
                match = mention.match(text, at)
                if match is not None:
                    self._problems.topics_met.add(topic)
                if match is None or not self._selection.wants_partition(match):
                    at = text.find(topic, at + 1)
                    continue
                begin, end = _entry_around(text, at)
                by_position[begin] = text[begin:end]
                at = text.find(topic, end)
        return [entry for _, entry in sorted(by_position.items())]

    def _block(self, begins_at: bytes, lines: list[bytes]) -> Block[Tag]:
        starts = list(map(start_of, lines))
        block: Block[Tag] = Block(begins_at, starts, entries=lines)
        if not lines:
            return block
        orphan = None
        if not are_starts(starts):
            orphan, block.entries = _joined(lines)
            block.starts = list(map(start_of, block.entries))
        block.has_continuations = bool(self._mentions) or self._has_bursts or len(block.entries) < len(lines)
        if self._clock is not None:
            block.starts = self._clock.starts(block.starts)
        self._tag(block)
        if orphan is not None:
            self._put_first(block, orphan)
        self._check_order(block)
        if block.starts:
            self._last_start = block.starts[-1]
            block.begins_at = min(block.begins_at, block.starts[0])
        self._select(block)
        return block

    def _put_first(self, block: Block[Tag], orphan: bytes) -> None:
        """Put lines without a time where the log left off."""
        self._problems.count(ProblemKind.WITHOUT_TIME, line_count(orphan))
        block.starts.insert(0, self._last_start)
        block.tags.insert(0, self._tag_for(self._file.broker_id))
        block.entries.insert(0, orphan)
        block.has_continuations = True

    def _tag(self, block: Block[Tag]) -> None:
        """Find out who wrote what; for one broker's log, look only at the few different beginnings."""
        for head in set(map(head_of, block.entries)).difference(self._heads):
            parsed = self._heads[head] = parse_head(head)
            self._has_unparsed = self._has_unparsed or not parsed.has_level
            if parsed.broker_id is not None and parsed.broker_id != self._file.broker_id:
                self._has_many_writers = True
        if self._has_unparsed:
            unparsed = sum(not self._heads[head].has_level for head in map(head_of, block.entries))
            self._problems.count(ProblemKind.UNPARSED, unparsed)
        if not self._has_many_writers:
            block.tags = [self._tag_for(self._file.broker_id)] * len(block.entries)
        else:
            block.tags = [self._tag_for(self._writer(entry)) for entry in block.entries]

    def _writer(self, entry: bytes) -> int | None:
        broker_id = self._heads[head_of(entry)].broker_id
        return self._file.broker_id if broker_id is None else broker_id

    def _tag_for(self, broker_id: int | None) -> Tag:
        if broker_id not in self._tag_by_broker:
            self._tag_by_broker[broker_id] = self._tag_of(self._file, broker_id)
        return self._tag_by_broker[broker_id]

    def _check_order(self, block: Block[Tag]) -> None:
        if any(map(gt, block.starts, islice(block.starts, 1, None))):
            jumps = zip(block.starts, block.starts[1:], block.entries[1:], strict=False)
            moved = sum(line_count(entry) for before, start, entry in jumps if before > start)
            self._problems.count(ProblemKind.REORDERED, moved)
            block.put_in_order()

    def _select(self, block: Block[Tag]) -> None:
        """Keep what is wanted of a block whose entries are already about the wanted topics."""
        start, end, brokers = self._selection.start, self._selection.end, self._selection.brokers
        if start is not None or end is not None:
            low = 0 if start is None else bisect_left(block.starts, start)
            high = len(block.starts) if end is None else bisect_right(block.starts, end)
            _keep(block, range(low, high))
        if brokers:
            _keep(block, [i for i, entry in enumerate(block.entries) if self._broker_of(entry) in brokers])

    def _broker_of(self, entry: bytes) -> int | None:
        return self._writer(entry) if is_start(entry) and self._has_many_writers else self._file.broker_id


def _keep(block: Block[Tag], wanted: Sequence[int]) -> None:
    block.starts = [block.starts[i] for i in wanted]
    block.tags = [block.tags[i] for i in wanted]
    block.entries = [block.entries[i] for i in wanted]


def _last_boundary(text: bytes) -> int:
    """Return where the line feed before the last entry stands; -1 if no second entry begins."""
    at = text.rfind(b"\n[")
    while at >= 0 and not is_start(text[at + 1 : at + 1 + START_BYTES]):
        at = text.rfind(b"\n[", 0, at)
    return at


def line_count(entry: bytes) -> int:
    """Return how many lines an entry, or a burst of them, has."""
    return entry.count(b"\n") + 1


def _last_start_in(text: bytes) -> bytes:
    """Return the time of the last entry in a text, or its first bytes if none has a time."""
    last = _last_boundary(text) + 1
    return text[last : last + START_BYTES]


def _entry_around(text: bytes, at: int) -> tuple[int, int]:
    """Return the begin and end of the entry that contains ``at``."""
    begin = at + 1
    while (begin := text.rfind(b"\n[", 0, begin)) >= 0 and not is_start(text[begin + 1 : begin + 1 + START_BYTES]):
        continue
    end = at - 1
    while (end := text.find(b"\n[", end + 1)) >= 0 and not is_start(text[end + 1 : end + 1 + START_BYTES]):
        continue
    return begin + 1, end if end >= 0 else len(text)


def _joined(lines: list[bytes]) -> tuple[bytes | None, list[bytes]]:
    """Return the lines before the first time as one, and the entries with all lines that belong to them."""
    groups: list[list[bytes]] = [[]]
    for line in lines:
        if is_start(line):
            groups.append([line])
        else:
            groups[-1].append(line)
    orphan = b"\n".join(groups[0]) if groups[0] else None
    return orphan, [group[0] if len(group) == 1 else b"\n".join(group) for group in groups[1:]]
