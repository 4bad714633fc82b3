"""The suite on brokers whose disks are small, fail or get full, and on brokers that go away while a case runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scripted_brokers import HANG_UP, ScriptedBroker, ScriptedCluster, scripted_cluster

from cli.views.perf import preview_lines
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.log_dirs.describing import LogDir
from engine.admin.perf.suite import Case, WatchedDisks, bytes_on_broker, bytes_on_disks, experiments
from engine.admin.perf.suite_run import Suite, SuiteOptions, WorkerFailed, WorkerFigures
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import CreatableTopicResult, CreateTopicsResponse
from engine.kafka.protocol.apis.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult

MB = 1_000_000
OPTIONS = SuiteOptions(lead_s=0.0, seconds=0.1, producer_bytes_max=MB)
Load = Callable[[str], Awaitable[None]]
Scene = Callable[["Brokers"], Load | None]


class Brokers:
    """Scripted brokers with a disk each, on which topics can be created and deleted."""

    def __init__(self, scripted: ScriptedCluster) -> None:
        self.scripted = scripted
        self.free = {broker.id: 900 * MB for broker in scripted.brokers}
        self.failed: set[int] = set()
        """Brokers whose log dir is offline."""
        self.tells_sizes = True
        self.refuses_to_delete = False
        self.told: list[str] = []
        """What the suite said."""
        self.created: list[str] = []
        for broker in scripted.brokers:
            broker.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _, broker_id=broker.id: self._dirs(broker_id)
            broker.answers[ApiKey.CREATE_TOPICS] = self._create
            broker.answers[ApiKey.DELETE_TOPICS] = self._delete

    def _dirs(self, broker_id: int) -> DescribeLogDirsResponse:
        total = (1000 + broker_id) * MB  # Disks of their own, although all brokers are on one host.
        error = ErrorCode.KAFKA_STORAGE_ERROR if broker_id in self.failed else ErrorCode.NONE
        log_dir = DescribeLogDirsResult(
            error_code=error,
            log_dir="/data",
            topics=[],
            total_bytes=total if self.tells_sizes else -1,
            usable_bytes=self.free[broker_id] if self.tells_sizes else -1,
        )
        return DescribeLogDirsResponse(results=[log_dir])

    def _create(self, request: Any) -> CreateTopicsResponse:
        names = [topic.name for topic in request.topics]
        if not request.validate_only:
            self.created += names
            self.scripted.leaders |= {name: [0] for name in names}
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=name) for name in names])

    def _delete(self, request: Any) -> DeleteTopicsResponse:
        names = [topic.name for topic in request.topics] or list(request.topic_names)
        code = ErrorCode.TOPIC_DELETION_DISABLED if self.refuses_to_delete else ErrorCode.NONE
        if code == ErrorCode.NONE:
            for name in names:
                self.scripted.leaders.pop(name, None)
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name, error_code=code) for name in names])

    async def stop_all(self) -> None:
        for broker in self.scripted.brokers:
            await broker.stop()

    def lose(self, broker: ScriptedBroker) -> None:
        """Take a broker out of the cluster, as after the end of its session."""
        broker.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: HANG_UP
        self.scripted.brokers.remove(broker)


class Workers:
    """Producers that do what a test says while they run."""

    def __init__(self, load: Load | None) -> None:
        self._load = load

    async def produce(
        self, topic: str, record_bytes: int, duration_s: float, record_count_max: int, start_at_s: float
    ) -> WorkerFigures:
        if self._load is not None:
            await self._load(topic)
        return WorkerFigures(10, 5.0, 1.0, 1.0, 2.0, 3.0, 4.0)

    async def consume(self, topic: str, record_count: int, duration_s: float, start_at_s: float) -> WorkerFigures:
        return WorkerFigures(record_count, 7.0, 1.0)


def run(
    scene: Scene, *names: str, options: SuiteOptions = OPTIONS, at_start: Scene = lambda _: None
) -> tuple[Suite, Brokers]:
    """Run experiments on two brokers.

    Args:
        at_start: prepares the brokers, before anybody looks at their disks.
        scene: prepares them after that, and returns what every producer does.
    """

    async def running() -> tuple[Suite, Brokers]:
        async with asyncio.timeout(60), scripted_cluster(2) as scripted:
            brokers = Brokers(scripted)
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(scripted.bootstrap))
            every = list(scripted.brokers)
            try:
                async with Cluster(target, timeout_s=2.0) as cluster:
                    at_start(brokers)
                    disks = await WatchedDisks.open(cluster, options.free_share_min)
                    suite = Suite(cluster, Workers(scene(brokers)), disks, options)
                    await suite.run(experiments(2, names=names), brokers.told.append)
                    return suite, brokers
            finally:
                for broker in every:
                    await broker.stop()

    return asyncio.run(running())


async def forever() -> None:
    await asyncio.Event().wait()


def test_a_log_dir_that_goes_offline_ends_the_case_and_the_suite() -> None:
    def scene(brokers: Brokers) -> Load:
        async def load(_: str) -> None:
            brokers.failed.add(1)
            await forever()

        return load

    suite, brokers = run(scene, "producers")
    assert suite.stopped == "/data of broker 1 is offline: KAFKA_STORAGE_ERROR"
    assert (suite.results, len(brokers.created), suite.left_topics) == ([], 1, [])


def test_a_disk_that_gets_full_ends_the_case_and_the_suite() -> None:
    def scene(brokers: Brokers) -> Load:
        async def load(_: str) -> None:
            brokers.free[1] = 50 * MB
            await forever()

        return load

    suite, brokers = run(scene, "producers")
    assert suite.stopped == "/data of broker 1 has only 5% left"
    assert (suite.results, len(brokers.created), suite.left_topics) == ([], 1, [])


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_broker_that_went_away_stops_the_suite(is_registered: bool) -> None:
    def scene(brokers: Brokers) -> Load:
        async def load(_: str) -> None:
            broker = brokers.scripted.brokers[-1]
            if is_registered:
                await broker.stop()
            elif broker.id == 1:
                brokers.lose(broker)
            raise WorkerFailed("producer: a leader is away")

        return load

    suite, _ = run(scene, "producers")
    assert suite.stopped is not None
    assert ("broker 1 does not answer" if is_registered else "broker 1 has left the cluster") in suite.stopped
    assert [result.error for result in suite.results] == ["producer: a leader is away"]
    assert suite.left_topics == []


@pytest.mark.parametrize("fails", [True, False])
def test_brokers_that_cannot_be_reached_stop_the_suite_and_their_topics_are_named(fails: bool) -> None:
    def scene(brokers: Brokers) -> Load:
        async def load(_: str) -> None:
            await brokers.stop_all()
            if fails:
                raise WorkerFailed("producer: nobody answers")

        return load

    suite, brokers = run(scene, "producers")
    assert suite.stopped is not None and suite.stopped.startswith("no broker can be reached")
    assert len(suite.results) == 1, "no further case has begun"
    assert suite.left_topics == brokers.created


def test_a_lost_answer_stops_the_suite() -> None:
    def scene(brokers: Brokers) -> None:
        for broker in brokers.scripted.brokers:
            broker.answers[ApiKey.CREATE_TOPICS] = lambda _: HANG_UP

    suite, _ = run(scene, "producers")
    assert suite.stopped is not None and "may still take effect" in suite.stopped
    assert [result.error is None for result in suite.results] == [False]


def test_what_a_case_may_write() -> None:
    case = Case("x", "y", record_bytes=100, partitions=6)
    assert bytes_on_disks(case, 1000) == 10 * (100 + 12), "with what a record's fields need"
    three = Case("x", "y", producers=3, record_bytes=100, partitions=6, replicas=2)
    assert bytes_on_disks(three, 1000) == 6 * 1120
    assert bytes_on_broker(three, 1000, 2) == 3 * 1120, "all that is sent"
    assert bytes_on_broker(case, 1000, 3) == 374, "two of six partitions"
    assert bytes_on_broker(Case("x", "y", partitions=1), 1000, 3) == 1120
    assert bytes_on_broker(Case("x", "y", partitions=6, replicas=2), 1000, 4) == 747, "maybe both of the last two"
    assert bytes_on_disks(Case("x", "y", record_bytes=5000), 1000) == 5012, "at least one record"


def with_little_room(brokers: Brokers) -> None:
    """10% of 1,000 MB must stay free, which leaves 1.5 MB for half of what is sent: three producers send 1.7 MB."""
    brokers.free[0] = 101 * MB + MB // 2


LITTLE_ROOM = "it may write 1.7 MB to /data of broker 0, which has room for 1.5 MB above the 10% that stay free"


def test_a_case_without_room_is_left_out() -> None:
    suite, brokers = run(lambda _: None, "producers", at_start=with_little_room)
    assert [result.error for result in suite.results] == [None, None, f"not run: {LITTLE_ROOM}"]
    assert suite.stopped is None
    assert (len(brokers.created), suite.left_topics) == (2, [])
    assert brokers.told == [f"{number} of 3: producers {number}" for number in (1, 2, 3)], "it did not wait"


def test_a_case_waits_for_the_room_that_earlier_topics_took() -> None:
    def scene(brokers: Brokers) -> Load:
        async def load(_: str) -> None:
            with_little_room(brokers)
            asyncio.get_running_loop().call_later(1.0, brokers.free.update, {0: 900 * MB})

        return load

    suite, brokers = run(scene, "producers")
    assert [result.error for result in suite.results] == [None, None, None]
    (waits,) = (line for line in brokers.told if " of 3: " not in line)
    assert re.fullmatch(rf"waiting up to \d+ s for brokers to delete the files of earlier topics: {LITTLE_ROOM}", waits)


@pytest.mark.parametrize(("patience_s", "deadline_s"), [(0.5, None), (90.0, 1.5)])
def test_a_case_waits_for_room_only_so_long(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, deadline_s: float | None
) -> None:
    monkeypatch.setattr("engine.admin.perf.suite_run._FILES_GO_WITHIN_S", patience_s)

    def scene(brokers: Brokers) -> Load:
        async def load(_: str) -> None:
            brokers.free[0] = 101 * MB

        return load

    options = SuiteOptions(lead_s=0.0, seconds=0.1, producer_bytes_max=2 * MB, deadline_s=deadline_s)
    suite, brokers = run(scene, "producers", options=options)
    first, second, *_ = suite.results
    assert first.error is None
    assert second.error is not None and second.error.startswith("not run: it may write 2.2 MB to /data of broker 0")
    assert (len(brokers.created), suite.left_topics) == (1, [])
    assert (suite.stopped is None) == (deadline_s is None)


def test_it_does_not_begin_where_no_case_has_room() -> None:
    def at_start(brokers: Brokers) -> None:
        brokers.free[1] = 101 * MB

    options = SuiteOptions(producer_bytes_max=2000 * MB)
    suite, brokers = run(lambda _: None, "replicas", "record-size", options=options, at_start=at_start)
    assert suite.stopped is not None
    assert suite.stopped.startswith("no case has room: record-size 10: it may write 2.2 GB to /data of broker 1")
    assert (suite.results, brokers.created) == ([], [])


def test_brokers_that_share_a_disk_share_its_room() -> None:
    def at_start(brokers: Brokers) -> None:
        brokers.free = {0: 101 * MB, 1: 101 * MB}
        same = brokers.scripted.brokers[0].answers[ApiKey.DESCRIBE_LOG_DIRS]
        brokers.scripted.brokers[1].answers[ApiKey.DESCRIBE_LOG_DIRS] = same

    suite, _ = run(lambda _: None, "replicas", at_start=at_start)
    assert suite.stopped is not None
    assert suite.stopped.startswith("no case has room: replicas 1: it may write 1.1 MB to /data of broker 0")


def disks_of(*dirs: LogDir) -> WatchedDisks:
    return WatchedDisks(
        Cluster(ClusterTarget("t", Origin.OPTIONS)), 0.1, dirs, {log_dir.broker: "h" for log_dir in dirs}
    )


@pytest.mark.parametrize("wanted", [3 * MB, 5000, 999])
def test_the_producer_bytes_that_are_named_have_room_for_all_cases(wanted: int) -> None:
    cases = [case for experiment in experiments(2) for case in experiment.cases]
    seen = []
    for free in (0, 100, 200, 2_000, 70_000, 5 * MB, 50 * MB):
        disks = disks_of(
            LogDir(0, "/data", None, 0, 0, 1000 * MB, 100 * MB + free),
            LogDir(1, "/data", None, 0, 0, 900 * MB, 900 * MB),
        )
        fitting = disks.producer_bytes_with_room(cases, wanted)
        assert 0 <= fitting <= wanted
        assert fitting == 0 or not any(disks.shortage(case, fitting) for case in cases)
        seen.append(fitting)
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, wanted)


def test_a_log_dir_that_was_offline_before_stops_nothing() -> None:
    suite, _ = run(lambda _: None, "pair", at_start=lambda brokers: brokers.failed.add(1))
    assert (suite.stopped, [result.error for result in suite.results]) == (None, [None])


def test_the_preview_names_disks_that_are_not_watched_and_cases_without_room() -> None:
    chosen = experiments(2, names=["producers"])
    disks = disks_of(
        LogDir(0, "/data", None, 0, 0, 1000 * MB, 101 * MB + MB // 2),
        LogDir(1, "/a", "KAFKA_STORAGE_ERROR", 0, 0, None, None),
        LogDir(2, "/data", None, 0, 0, None, None),
        LogDir(3, None, "no answer within 5 s", 0, 0, None, None),
    )
    *_, offline, old, silent, short = preview_lines(chosen, SuiteOptions(producer_bytes_max=2 * MB), 4, disks)
    assert offline == "  /a of broker 1 is offline already, and is not watched"
    assert old == (
        "  broker 2 does not say how large its disks are, so they are not watched: only Kafka 3.3 and later does"
    )
    assert silent.endswith("so they are not watched: no answer within 5 s")
    matched = re.fullmatch(r"  left out for lack of room: 1 of 3 cases; none with --producer-bytes (\d+)", short)
    assert matched is not None and 0 < int(matched[1]) < 2 * MB
    whole = disks_of(LogDir(0, "/data", None, 0, 0, 100_000 * MB, 90_000 * MB))
    assert "may wait for room" in preview_lines(chosen, SuiteOptions(), 1, whole)[-1], "nothing else to say"


def test_brokers_that_tell_no_sizes_are_loaded_all_the_same() -> None:
    suite, _ = run(lambda _: None, "pair", at_start=lambda brokers: setattr(brokers, "tells_sizes", False))
    assert (suite.stopped, [result.error for result in suite.results]) == (None, [None])


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_topic_whose_creation_got_no_answer_is_named(is_lost: bool) -> None:
    sent: list[str] = []

    def scene(brokers: Brokers) -> None:
        def create(request: Any) -> Any:
            (topic,) = request.topics
            sent.append(topic.name)
            if is_lost:
                return HANG_UP
            refusal = CreatableTopicResult(name=topic.name, error_code=ErrorCode.POLICY_VIOLATION)
            return CreateTopicsResponse(topics=[refusal])

        for broker in brokers.scripted.brokers:
            broker.answers[ApiKey.CREATE_TOPICS] = create

    suite, _ = run(scene, "pair")
    assert suite.left_topics == []
    assert suite.topics_that_may_appear == (sent[:1] if is_lost else [])


def test_topics_that_the_cluster_refuses_to_delete_are_named() -> None:
    def scene(brokers: Brokers) -> None:
        brokers.refuses_to_delete = True

    suite, brokers = run(scene, "pair")
    assert len(suite.results) == 1
    assert suite.left_topics == brokers.created != []
