"""The brokers and their disks while a suite runs: what stops it, and whether there is room for a case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.admin.cluster.connection import Cluster
from engine.admin.log_dirs.describing import LogDir, read_log_dirs
from engine.admin.perf.suite import Case, bytes_on_broker, bytes_on_disks
from engine.common.quantities import size_text


class MustStop(Exception):
    """The suite cannot continue; the text says why."""


class WatchedDisks:
    """The log dirs of the brokers that are online when it is opened. A disk of unknown size is not watched."""

    def __init__(
        self, cluster: Cluster, free_share_min: float, dirs: Sequence[LogDir], hosts: Mapping[int, str]
    ) -> None:
        self._cluster = cluster
        self._free_share_min = free_share_min
        self._at_start = dirs
        self._hosts = hosts
        self.offline = {
            (log_dir.broker, log_dir.log_dir)
            for log_dir in dirs
            if log_dir.log_dir is not None and log_dir.error is not None
        }
        """The log dirs that were offline at the start."""

    @classmethod
    async def open(cls, cluster: Cluster, free_share_min: float) -> WatchedDisks:
        """Read the log dirs of all brokers.

        Raises:
            AdminError: no broker can be reached.
        """
        dirs = await read_log_dirs(cluster, None, ())
        nodes = await (await cluster.wire()).nodes()
        return cls(cluster, free_share_min, dirs, {broker: node.host for broker, node in nodes.items()})

    @property
    def unwatched(self) -> dict[int, str]:
        """Brokers that did not say at the start how large their disks are, and why."""
        return {
            log_dir.broker: (log_dir.error or "only Kafka 3.3 and later does")
            for log_dir in self._at_start
            if log_dir.total_bytes is None and (log_dir.broker, log_dir.log_dir) not in self.offline
        }

    async def look(self, *, must_answer: bool) -> list[LogDir]:
        """Return the log dirs of all brokers.

        Raises:
            MustStop: a log dir has gone offline or is nearly full, or a broker has left the cluster; or, with
                ``must_answer``, a broker is silent, for which a heavy load is no excuse then.
            AdminError: no broker can be reached.
        """
        dirs = await read_log_dirs(self._cluster, None, ())
        for log_dir in dirs:
            if (
                log_dir.log_dir is not None
                and log_dir.error is not None
                and (log_dir.broker, log_dir.log_dir) not in self.offline
            ):
                raise MustStop(f"{log_dir.log_dir} of broker {log_dir.broker} is offline: {log_dir.error}")
        for log_dir in dirs:
            if log_dir.total_bytes and log_dir.usable_bytes is not None:
                share = log_dir.usable_bytes / log_dir.total_bytes
                if share < self._free_share_min:
                    raise MustStop(f"{log_dir.log_dir} of broker {log_dir.broker} has only {share:.0%} left")
        for broker in sorted(self._hosts.keys() - {log_dir.broker for log_dir in dirs}):
            raise MustStop(f"broker {broker} has left the cluster")
        answered = {log_dir.broker for log_dir in self._at_start if log_dir.log_dir is not None}
        for log_dir in dirs:
            if must_answer and log_dir.log_dir is None and log_dir.broker in answered:
                raise MustStop(f"broker {log_dir.broker} does not answer: {log_dir.error}")
        return dirs

    def shortage(self, case: Case, producer_bytes: int, dirs: Sequence[LogDir] | None = None) -> str | None:
        """Return which disk has the least room for a case, if it is too little.

        It assumes the worst: that all bytes of a broker go to one of its log dirs.

        Args:
            dirs: as ``look`` returned them; None: as they were at the start.
        """
        dirs = self._at_start if dirs is None else dirs
        each = bytes_on_broker(case, producer_bytes, len(self._hosts))
        worst, least = None, 1.0
        for disk in dirs:
            if not disk.total_bytes or disk.usable_bytes is None:
                continue
            need = min(each * len(self._sharing(disk, dirs)), bytes_on_disks(case, producer_bytes))
            room = max(0.0, disk.usable_bytes - disk.total_bytes * self._free_share_min)
            if room / need < least:
                least = room / need
                worst = (
                    f"it may write {size_text(need)} to {disk.log_dir} of broker {disk.broker}, which has room for "
                    f"{size_text(room)} above the {self._free_share_min:.0%} that stay free"
                )
        return worst

    def producer_bytes_with_room(self, cases: Iterable[Case], producer_bytes: int) -> int:
        """Return how much each producer may send so that all cases had room at the start; 0 if nothing fits."""
        for case in cases:
            while producer_bytes and self.shortage(case, producer_bytes):
                producer_bytes = producer_bytes * 9 // 10
        return producer_bytes

    def _sharing(self, log_dir: LogDir, dirs: Sequence[LogDir]) -> set[int]:
        """Return the brokers of a host whose disks are equally large: most likely it is one disk."""
        host = self._hosts.get(log_dir.broker)
        return {
            other.broker
            for other in dirs
            if other.total_bytes == log_dir.total_bytes and self._hosts.get(other.broker) == host
        }
