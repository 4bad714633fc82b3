"""Merged entries as text: the lines as they were, each with the broker before it: ``broker-2 | [2015-03-01 …``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.admin.state_changes.entry_reader import TagOf
from engine.admin.state_changes.log_files import LogFile
from engine.admin.state_changes.merge import MergePlan
from engine.admin.state_changes.merging import Batch

_ENTRIES_PER_CHUNK = 250
"""Few enough to build a chunk in cached memory."""


def text_tags(plan: MergePlan) -> TagOf[bytes]:
    """Return a maker of tags for text: a line feed and the line's broker, padded to the widest."""
    width = max((len(str(broker_id)) for broker_id in plan.broker_ids), default=1)

    def tag_of(file: LogFile, broker_id: int | None) -> bytes:
        name = "?" if broker_id is None else str(broker_id)
        return f"\nbroker-{name:<{width}} | ".encode("ascii")

    return tag_of


def text_chunks(batches: Iterable[Batch[bytes]]) -> Iterator[bytes]:
    """Yield the text, in pieces that end anywhere. Every line has its broker before it, those of a stack trace too."""
    is_first = True
    for batch in batches:
        pieces = [b""] * (2 * len(batch.entries))
        pieces[::2] = batch.tags
        pieces[1::2] = _with_tags(batch) if batch.has_continuations else batch.entries
        for begin in range(0, len(pieces), 2 * _ENTRIES_PER_CHUNK):
            chunk = b"".join(pieces[begin : begin + 2 * _ENTRIES_PER_CHUNK])
            yield chunk[1:] if is_first else chunk
            is_first = False
    if not is_first:
        yield b"\n"


def _with_tags(batch: Batch[bytes]) -> list[bytes]:
    return [
        entry.replace(b"\n", tag) if b"\n" in entry else entry
        for tag, entry in zip(batch.tags, batch.entries, strict=True)
    ]
