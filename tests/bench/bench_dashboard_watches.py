"""How soon a dashboard shows what ZooKeeper's watches report: from the end of a write to the frame, and to the screen.

A real ZooKeeper; this program writes the znodes of brokers, controller, topics and reassignments. A feed here takes the
frames, and a ``klamm top`` in a terminal shows each change in its timeline. Once with an idle cluster of three topics,
once with one of 5,000 partitions.

Beside other work on the machine, most of the time is waiting for a processor. So the last columns have what is left
without that of the main thread, as Linux counts it: of the feed's process, and of the dashboard's.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from dashboard_terminal import DashboardTerminal

from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.cluster.zookeeper import open_zookeeper
from engine.admin.watch.frame import Frame
from engine.admin.watch.live_feed import LiveFeed
from engine.common.model import TopicPartition
from engine.kafka.zk.client import ZkClient
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

CHANGES = int(os.environ.get("KLAMM_BENCH_CHANGES", "100"))
BROKERS = (1, 2, 3)
WAIT_S = 10.0
PAUSE_S = 0.23
"""Between two changes; frames without news come each second, so changes meet them at every moment."""


def main() -> None:
    """Print the table."""
    print(f"{CHANGES} changes of each kind; ms from the end of the write; load {os.getloadavg()[0]:.1f}")
    heads = ("to the frame", "to the screen", "frame, had a processor", "screen, had a processor")
    print(f"{'':34}" + "".join(f"{head:^24}" for head in heads))
    print(f"{'partitions':<12}{'change':<22}" + f"{'p50':>8}{'p99':>8}{'max':>8}" * len(heads))
    for topics, partitions in ((3, 1), (1_000, 5)):
        asyncio.run(_measure(topics, partitions))


async def _measure(topics: int, partitions: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        zookeeper = EmbeddedZooKeeper(Path(folder) / "zookeeper", host=own_loopback_address(), fsync=False)
        zookeeper.start()
        try:
            zk = await open_zookeeper(zookeeper.connect_string, timeout_s=WAIT_S)
            await _fill(zk, topics, partitions)
            async with _watching(zookeeper.connect_string, Path(folder), topics) as watched:
                for kind, change in _CHANGES.items():
                    await _measure_kind(zk, watched, f"{topics * partitions:<12,}{kind:<22}", change)
            await zk.close()
        finally:
            zookeeper.stop()


async def _fill(zk: ZkClient, topics: int, partitions: int) -> None:
    for path in (
        "/brokers/ids",
        "/brokers/topics",
        "/admin/delete_topics",
        "/config/changes",
        "/isr_change_notification",
    ):
        await zk.ensure_path(path)
    for broker in BROKERS:
        await zk.create(f"/brokers/ids/{broker}", _broker(broker))
    await zk.create("/controller_epoch", b"1")
    await zk.create("/controller", _controller(1))
    for number in range(topics):
        path = f"/brokers/topics/t-{number:04}"
        await zk.create(path, _topic(partitions))
        for partition in range(partitions):
            await zk.ensure_path(f"{path}/partitions/{partition}")
            await zk.create(f"{path}/partitions/{partition}/state", _STATE)


def _broker(broker: int) -> bytes:
    endpoint = f"PLAINTEXT://127.0.0.1:{broker % 1000 + 1}"
    return _json(version=5, host="127.0.0.1", port=broker % 1000 + 1, endpoints=[endpoint], jmx_port=-1, features={},
                 listener_security_protocol_map={"PLAINTEXT": "PLAINTEXT"}, timestamp="1700000000000")  # fmt: skip


def _controller(broker: int) -> bytes:
    return _json(version=1, brokerid=broker, timestamp="1700000000000")


def _topic(partitions: int, adding: dict[str, list[int]] | None = None) -> bytes:
    replicas = {str(number): [*BROKERS, *(adding or {}).get(str(number), [])] for number in range(partitions)}
    return _json(version=2, partitions=replicas, adding_replicas=adding or {}, removing_replicas={})


def _json(**values: object) -> bytes:
    return json.dumps(values).encode()


_STATE = _json(controller_epoch=1, leader=1, version=1, leader_epoch=0, isr=list(BROKERS))


class _Change(ABC):
    """One change of the cluster; the number tells it from others of its kind."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.broker = 5000 + number
        self.topic = f"new-{number:04}"

    @abstractmethod
    async def write(self, zk: ZkClient) -> None:
        """Make the change."""

    @abstractmethod
    def is_in(self, frame: Frame) -> bool:
        """Whether a frame shows it."""

    @property
    @abstractmethod
    def text(self) -> str:
        """What the timeline says that it did not say before."""


class _BrokerComes(_Change):
    async def write(self, zk: ZkClient) -> None:
        await zk.create(f"/brokers/ids/{self.broker}", _broker(self.broker))

    def is_in(self, frame: Frame) -> bool:
        return frame.cluster is not None and self.broker in frame.cluster.live_broker_ids

    @property
    def text(self) -> str:
        return f"broker{self.broker}"


class _ControllerMoves(_Change):
    async def write(self, zk: ZkClient) -> None:
        await zk.set("/controller", _controller(6000 + self.number))

    def is_in(self, frame: Frame) -> bool:
        return frame.cluster is not None and frame.cluster.controller_id == 6000 + self.number

    @property
    def text(self) -> str:
        return f"→{6000 + self.number}"


class _TopicComes(_Change):
    async def write(self, zk: ZkClient) -> None:
        await zk.create(f"/brokers/topics/{self.topic}", _topic(1))

    def is_in(self, frame: Frame) -> bool:
        return frame.cluster is not None and frame.cluster.topic(self.topic) is not None

    @property
    def text(self) -> str:
        return f"topiccreated{self.topic}"


class _ReassignmentBegins(_Change):
    """One of the topics that the changes before have made."""

    async def write(self, zk: ZkClient) -> None:
        await zk.set(f"/brokers/topics/{self.topic}", _topic(1, {"0": [7000 + self.number]}))

    def is_in(self, frame: Frame) -> bool:
        partition = None if frame.cluster is None else frame.cluster.partition(TopicPartition(self.topic, 0))
        return partition is not None and partition.assignment.is_being_reassigned

    @property
    def text(self) -> str:
        return f"reassignmentstarted{self.topic}"


_CHANGES: dict[str, type[_Change]] = {
    "a broker comes": _BrokerComes,
    "the controller moves": _ControllerMoves,
    "a topic comes": _TopicComes,
    "a reassignment begins": _ReassignmentBegins,
}


class _Watched:
    """A feed, and a terminal; each tells when it showed something."""

    def __init__(self, feed: LiveFeed, top: DashboardTerminal) -> None:
        self._feed = feed
        self._top = top
        self._waited_before = (0.0, 0.0)
        self._written, self._seen = b"", ""
        self._is_in: Callable[[Frame], bool] | None = None
        self._text = ""
        self.frame_s: float | None = None
        self.screen_s: float | None = None
        self.frame_waited_s = self.screen_waited_s = 0.0
        self.news = asyncio.Event()

    async def take_frames(self) -> None:
        async for frame in self._feed.frames():
            if self._is_in is not None and self.frame_s is None and self._is_in(frame):
                self.frame_s = time.monotonic()
                self.frame_waited_s = _waited_s() - self._waited_before[0]
            self.news.set()

    def take_output(self) -> None:
        """Take what the dashboard has written."""
        written = self._top.read(0.0)
        now = time.monotonic()
        self._written += written
        self._seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\s", "", self._written.decode("utf-8", "replace"))
        if self._text and self.screen_s is None and self._text in self._seen:
            self.screen_s = now
            self.screen_waited_s = self._top.waited_s - self._waited_before[1]
        self.news.set()

    def go_to_the_newest(self) -> None:
        """The cursor stays on its row, which newer ones push down, and out of the window in the end."""
        self._top.press(b"\x1b[H")

    def expect(self, change: _Change) -> None:
        self._is_in, self._text = change.is_in, change.text
        self._written, self._seen = b"", ""
        self.frame_s = self.screen_s = None

    def was_written(self) -> None:
        """From now on the time counts."""
        self._waited_before = _waited_s(), self._top.waited_s

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(6 * WAIT_S):
            while not is_so():
                self.news.clear()
                await self.news.wait()

    def has_seen(self, text: str) -> bool:
        return text in self._seen


@asynccontextmanager
async def _watching(connect: str, home: Path, topics: int) -> AsyncIterator[_Watched]:
    """Watch with a feed here, and with a dashboard in a terminal."""
    feed = LiveFeed(ClusterTarget("bench", Origin.OPTIONS, zookeeper=connect, via=Side.ZOOKEEPER))
    top = DashboardTerminal(["--screen", "timeline", "--zookeeper", connect, "--via", "zookeeper"], home)
    watched = _Watched(feed, top)
    loop = asyncio.get_running_loop()
    loop.add_reader(top.terminal, watched.take_output)
    await feed.start()
    taking = asyncio.create_task(watched.take_frames())
    try:
        await watched.until(lambda: watched.has_seen("HEALTHY") or watched.has_seen("nothinghashappened"))
        await watched.until(lambda: feed.latest is not None and feed.latest.cluster is not None
                            and len(feed.latest.cluster.topics) == topics)  # fmt: skip
        await asyncio.sleep(10 if topics > 100 else 3)
        yield watched
    finally:
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        await feed.close()
        loop.remove_reader(top.terminal)
        top.close()


async def _measure_kind(zk: ZkClient, watched: _Watched, head: str, kind: type[_Change]) -> None:
    times_ms: list[list[float]] = [[], [], [], []]
    for number in range(CHANGES):
        change = kind(number)
        watched.expect(change)
        await change.write(zk)
        watched.was_written()
        written_s = time.monotonic()
        await watched.until(lambda: watched.frame_s is not None and watched.screen_s is not None)
        assert watched.frame_s is not None and watched.screen_s is not None
        frame_s, screen_s = watched.frame_s - written_s, watched.screen_s - written_s
        kept = frame_s, screen_s, frame_s - watched.frame_waited_s, screen_s - watched.screen_waited_s
        for times, reading in zip(times_ms, kept, strict=True):
            # The watch may be faster than the answer to the writer.
            times.append(max(0.0, reading) * 1000)
        watched.go_to_the_newest()
        await asyncio.sleep(PAUSE_S)
    print(head + "".join(f"{figure:>8.0f}" for times in times_ms for figure in _figures(times)), flush=True)


def _waited_s() -> float:
    """Return how long this thread has waited for a processor so far."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def _figures(found: list[float]) -> tuple[float, float, float]:
    return statistics.median(found), statistics.quantiles(found, n=100, method="inclusive")[98], max(found)
