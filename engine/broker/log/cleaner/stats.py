"""What one cleaning did, and Kafka's log lines about it."""

from __future__ import annotations

from dataclasses import dataclass

_MB = 1024 * 1024


@dataclass(slots=True)
class CleaningStats:
    """Counted by the cleaning process; times in seconds since it began."""

    bytes_read: int = 0
    bytes_written: int = 0
    map_bytes_read: int = 0
    map_messages_read: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    map_utilization: float = 0.0
    index_s: float = 0.0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0


def log_text(stats: CleaningStats, thread: int, log_name: str, first_offset: int, end_offset: int) -> str:
    """Return the lines that Kafka's cleaner logs once it has cleaned a log; people and scripts read them."""
    elapsed_s = max(stats.elapsed_s, 1e-6)
    index_s = max(stats.index_s, 1e-6)
    copy_s = max(elapsed_s - stats.index_s, 1e-6)
    read_mb, written_mb, mapped_mb = (
        count / _MB for count in (stats.bytes_read, stats.bytes_written, stats.map_bytes_read)
    )
    lines = (
        "",
        f"\tLog cleaner thread {thread} cleaned log {log_name} (dirty section = [{first_offset}, {end_offset}])",
        f"\t{read_mb:,.1f} MB of log processed in {elapsed_s:,.1f} seconds ({read_mb / elapsed_s:,.1f} MB/sec).",
        f"\tIndexed {mapped_mb:,.1f} MB in {index_s:.1f} seconds ({mapped_mb / index_s:,.1f} Mb/sec, "
        f"{100 * index_s / elapsed_s:.1f}% of total time)",
        f"\tBuffer utilization: {100 * stats.map_utilization:.1f}%",
        f"\tCleaned {read_mb:,.1f} MB in {copy_s:.1f} seconds ({read_mb / copy_s:,.1f} Mb/sec, "
        f"{100 * copy_s / elapsed_s:.1f}% of total time)",
        f"\tStart size: {read_mb:,.1f} MB ({stats.messages_read:,} messages)",
        f"\tEnd size: {written_mb:,.1f} MB ({stats.messages_written:,} messages)",
        f"\t{_less(stats.bytes_written, stats.bytes_read):.1f}% size reduction "
        f"({_less(stats.messages_written, stats.messages_read):.1f}% fewer messages)",
        "",
    )
    return "\n".join(lines)


def _less(after: int, before: int) -> float:
    return 100 * (1 - after / before) if before else 0.0
