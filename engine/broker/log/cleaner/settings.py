"""The broker's settings of its log cleaner, typed."""

from __future__ import annotations

from dataclasses import dataclass

RATE_MAX = 1e18
"""No bound, without the infinity that JSON and clocks cannot express."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Names are Kafka's keys without ``log.cleaner.``. ``threads`` are processes here, which share the rest."""

    enable: bool = True
    threads: int = 1
    dedupe_buffer_size: int = 134_217_728
    io_buffer_size: int = 524_288
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = RATE_MAX
    backoff_ms: int = 15_000

    @property
    def map_bytes(self) -> int:
        """How many bytes one key map may take."""
        return max(int(self.dedupe_buffer_size / max(self.threads, 1) * self.io_buffer_load_factor), 1)

    @property
    def buffer_bytes(self) -> int:
        """How much one process reads or writes at once; it has one buffer for reads and one for writes."""
        return max(self.io_buffer_size // max(self.threads, 1) // 2, 4096)

    @property
    def bytes_per_second(self) -> float:
        """How much one process may read and write per second."""
        return max(min(self.io_max_bytes_per_second / max(self.threads, 1), RATE_MAX), 1.0)
