"""The lag history in Parquet: files, what is read back, minutes outside an objective, and folders without a history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from event_loop import in_event_loop
from scripted_brokers import scripted_cluster
from scripted_groups import ScriptedGroups

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.target import Naming, resolve_target
from engine.admin.groups.values import GroupType
from engine.admin.lag.history_folder import COLUMNS, Lake, Rows, chunk_of
from engine.admin.lag.history_reading import CompactedDay, Moment, Objective, compact, read_lake
from engine.admin.lag.history_sampling import ChunkDone, Watched, plan_chunks, sample_chunk
from engine.admin.lag.verdicts import LagStatus, Point
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

MIDNIGHT_MS = round(datetime(2026, 11, 22, tzinfo=UTC).timestamp() * 1000)
MINUTE = 60_000


def rows(*given: dict[str, object]) -> Rows:
    """Return columns of rows in which only some values are given."""
    defaults: dict[str, object] = dict.fromkeys(COLUMNS) | {
        "sample": 0, "chunk": 0, "time": MIDNIGHT_MS, "sampled_at": MIDNIGHT_MS, "cluster": "c", "kind": "group",
        "group": "g", "type": "classic", "group_status": "OK", "topic": "orders", "partition": 0, "status": "OK",
    }  # fmt: skip
    return {name: [(defaults | changed)[name] for changed in given] for name in COLUMNS}


def keep(lake: Lake, minute: int, *given: dict[str, object], chunk: int = 0) -> None:
    """Write the sample of that minute. Those of the day before have the numbers up to 9,999."""
    time_ms = MIDNIGHT_MS + minute * MINUTE
    number = minute if minute >= 0 else minute + 10_000
    shared: dict[str, object] = {"sample": number, "time": time_ms, "sampled_at": time_ms + 7, "chunk": chunk}
    lake.write(time_ms, number, chunk, rows(*(shared | changed for changed in given)))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path / "lag"))
    assert made.prepare(2) == 2
    return made


def test_a_file_per_sample_and_chunk_by_day(lake: Lake, tmp_path: Path) -> None:
    for minute in (-1, 0, 1):
        keep(lake, minute, {"lag": minute}, chunk=0) if minute >= 0 else lake.write(MIDNIGHT_MS - 1, 0, 1, rows({}))
    paths = sorted(str(path.relative_to(tmp_path / "lag")) for path in (tmp_path / "lag").rglob("*.parquet"))
    assert paths == [
        f"day=2026-11-21/{MIDNIGHT_MS - 1}-0000000000-001.parquet",
        f"day=2026-11-22/{MIDNIGHT_MS}-0000000000-000.parquet",
        f"day=2026-11-22/{MIDNIGHT_MS + MINUTE}-0000000001-000.parquet",
    ]
    assert [(file.time_ms, file.chunk) for file in lake.files(MIDNIGHT_MS - 1, MIDNIGHT_MS)] == [
        (MIDNIGHT_MS - 1, 1),
        (MIDNIGHT_MS, 0),
    ]


def test_a_sample_that_is_written_again_is_there_once(lake: Lake) -> None:
    keep(lake, 0, {"lag": 5}, {"lag": 6, "partition": 1})
    keep(lake, 0, {"lag": 7})
    (file,) = lake.files(0, 2 * MIDNIGHT_MS)
    assert lake.read([file], ["lag"]).to_pylist() == [{"lag": 7}]


def test_half_written_files_are_not_there(lake: Lake, tmp_path: Path) -> None:
    keep(lake, 0, {"lag": 5})
    folder = tmp_path / "lag" / "day=2026-11-22"
    (folder / f".{MIDNIGHT_MS}-0000000001-000.parquet.arriving").write_bytes(b"PAR1")
    (tmp_path / "lag" / "_spark" / "offsets").mkdir(parents=True)
    assert len(lake.files(0, 2 * MIDNIGHT_MS)) == 1


def test_the_past_of_some_groups(lake: Lake) -> None:
    for minute in range(12):
        keep(lake, minute, {"committed": minute, "end": 99}, {"group": "other", "committed": 1, "end": 2})
    keep(lake, 3, {"committed": 77, "end": 99}, chunk=1)
    now_ms = MIDNIGHT_MS + 12 * MINUTE
    points = lake.points_before(now_ms, 0, "c", ["g"])
    assert list(points) == [("g", GroupType.CLASSIC)]
    series = points["g", GroupType.CLASSIC][TopicPartition("orders", 0)]
    assert series == [Point(MIDNIGHT_MS + minute * MINUTE + 7, minute, 99) for minute in range(3, 12)]
    assert lake.points_before(now_ms, 0, "another", ["g"]) == {}
    assert lake.points_before(MIDNIGHT_MS, 0, "c", ["g"]) == {}, "only what was before"


def test_minutes_outside_an_objective(lake: Lake) -> None:
    for minute, lag in enumerate([0, 10, 20, 5, None, 30]):
        keep(
            lake,
            minute if minute < 5 else 15,
            {"lag": lag, "time_lag_ms": None if lag is None else lag * 1000},
            {"lag": 1, "partition": 1, "time_lag_ms": 0} if lag is not None else {"lag": None, "partition": 1},
            {"group": "fine", "lag": 0},
        )
    history = read_lake(lake, MIDNIGHT_MS, 2 * MIDNIGHT_MS, Objective(lag=10))
    mine, fine = history.readers
    for asked, names in (("[fg].*", ["g", "fine"]), ("f", []), ("fin[e", []), ("g", ["g"])):
        some = read_lake(lake, MIDNIGHT_MS, 2 * MIDNIGHT_MS, Objective(lag=10), [asked]).readers
        assert [sample.group for sample in some] == names, asked
    assert (mine.group, fine.group, history.sample_count, history.interval_ms) == ("g", "fine", 6, MINUTE)
    assert (mine.max_lag, mine.last_lag, mine.mean_lag) == (31, 31, (1 + 11 + 21 + 6 + 31) / 5)
    # Lags of 11, 21 and 31. The last sample stands for one interval, one before a gap for two.
    assert (mine.outside_minutes, mine.unknown_minutes, mine.minutes) == (3, 2, 7)
    assert (fine.outside_minutes, fine.unknown_minutes) == (0, 0)
    by_time = read_lake(lake, MIDNIGHT_MS, 2 * MIDNIGHT_MS, Objective(time_lag_ms=19_999), ["g"]).readers
    assert [(window.group, window.outside_minutes, window.max_time_lag_ms) for window in by_time] == [("g", 2, 30_000)]
    later = read_lake(lake, MIDNIGHT_MS + 3 * MINUTE, 2 * MIDNIGHT_MS, Objective(lag=10), ["g"])
    assert later.readers[0].sample_count == 3


@pytest.mark.parametrize(
    ("objective", "moment", "expected"),
    [
        (Objective(), Moment(0, LagStatus.STALL, 5, None), False),
        (Objective(), Moment(0, LagStatus.WARN, 5, None), True),
        (Objective(), Moment(0, LagStatus.UNKNOWN, None, None), None),
        (Objective(lag=5), Moment(0, LagStatus.STALL, 5, None), True),
        (Objective(lag=5), Moment(0, LagStatus.OK, 6, None), False),
        (Objective(lag=5), Moment(0, LagStatus.OK, None, None), None),
        (Objective(5, 100), Moment(0, LagStatus.OK, 5, None), None),
        (Objective(5, 100), Moment(0, LagStatus.OK, None, 101), False),
        (Objective(5, 100), Moment(0, LagStatus.OK, 5, 100), True),
    ],
)
def test_what_is_outside(objective: Objective, moment: Moment, expected: bool | None) -> None:
    assert objective.is_met(moment) is expected


def all_rows(lake: Lake) -> list[tuple[object, ...]]:
    """Return each row that readers see at this moment."""
    files = Lake(lake.shown).files(0, 2 * MIDNIGHT_MS)
    table = Lake(lake.shown).read(files, ["sample", "chunk", "time", "lag"])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def parquet_names(lake: Lake) -> list[str]:
    return sorted(str(path.relative_to(lake.shown)) for path in Path(lake.shown).rglob("*.parquet"))


def test_many_files_become_few(lake: Lake) -> None:
    for minute in range(-110, 10):
        keep(lake, minute, {"lag": minute}, {"lag": 7, "partition": 1})
        keep(lake, minute, {"group": "h", "lag": 1}, chunk=1)
    before, points = all_rows(lake), lake.points_before(MIDNIGHT_MS, 0, "c", ["g"])
    history = read_lake(lake, MIDNIGHT_MS - 9 * MINUTE, MIDNIGHT_MS - 2 * MINUTE, Objective(lag=1))
    now_ms = MIDNIGHT_MS + 10 * MINUTE
    assert compact(lake, now_ms) == [CompactedDay("2026-11-21", 220, 2)]
    names = parquet_names(lake)
    assert names[:2] == ["day=2026-11-21/all-000-000001.parquet", "day=2026-11-21/all-001-000001.parquet"]
    assert len(names) == 2 + 20, "today's samples are left alone"
    assert all_rows(lake) == before
    again = Lake(lake.shown)
    assert again.points_before(MIDNIGHT_MS, 0, "c", ["g"]) == points
    assert read_lake(again, MIDNIGHT_MS - 9 * MINUTE, MIDNIGHT_MS - 2 * MINUTE, Objective(lag=1)) == history
    assert compact(lake, now_ms) == []
    keep(lake, -3, {"lag": 99})
    assert all_rows(lake) == before, "a sample that comes again is there once"
    keep(lake, -111, {"lag": 98})
    assert compact(lake, now_ms) == [CompactedDay("2026-11-21", 4, 2)]
    assert parquet_names(lake)[:2] == ["day=2026-11-21/all-000-000002.parquet", "day=2026-11-21/all-001-000001.parquet"]
    assert len(all_rows(lake)) == len(before) + 1


def test_samples_come_while_files_become_few(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler that was down over midnight writes yesterday's last sample, and a reader looks in between."""
    for minute in (-3, -2):
        keep(lake, minute, {"lag": minute})
    before = all_rows(lake)
    seen: list[list[tuple[object, ...]]] = []
    write, delete = Lake.write_many, Lake.delete

    def write_many(self: Lake, *given: Any) -> None:
        keep(lake, -1, {"lag": -1})
        write(self, *given)
        seen.append(all_rows(lake))

    def delete_half(self: Lake, paths: Sequence[str]) -> None:
        delete(self, paths[:1])
        seen.append(all_rows(lake))
        raise KeyboardInterrupt

    monkeypatch.setattr(Lake, "write_many", write_many)
    monkeypatch.setattr(Lake, "delete", delete_half)
    with pytest.raises(KeyboardInterrupt):
        compact(lake, MIDNIGHT_MS)
    monkeypatch.undo()
    late = all_rows(lake)
    assert seen == [late, late]
    assert [row for row in late if row[-1] != -1] == before
    assert len(late) == 3
    assert compact(lake, MIDNIGHT_MS) == [CompactedDay("2026-11-21", 3, 1)]
    assert all_rows(lake) == late
    assert parquet_names(lake) == ["day=2026-11-21/all-000-000002.parquet"]


def test_half_a_file_of_many_does_not_count(lake: Lake, tmp_path: Path) -> None:
    """An object store may show what a killed process wrote."""
    for minute in (-3, -2):
        keep(lake, minute, {"lag": minute})
    before = all_rows(lake)
    folder = tmp_path / "lag" / "day=2026-11-21"
    (folder / "all-000-000001.parquet").write_bytes(next(folder.iterdir()).read_bytes())
    (folder / "all-000-000002.parquet").write_bytes(b"PAR1")
    assert all_rows(lake) == before
    assert len(compact(lake, MIDNIGHT_MS)) == 1
    assert all_rows(lake) == before


def test_a_cluster_that_does_not_answer_is_unknown(lake: Lake, tmp_path: Path) -> None:
    """So are its known readers, or the cluster itself if there were none."""
    target = resolve_target(Naming(bootstrap_servers="127.0.0.1:9"), {}, tmp_path)

    def sample(minute: int) -> None:
        time_ms = MIDNIGHT_MS + minute * MINUTE
        tasks, failures = plan_chunks([Watched(target)], lake.shown, time_ms, minute, 2, with_times=False)
        assert len(failures) == 1
        for task in tasks:
            sample_chunk(task)

    def seen(minute: int) -> list[tuple[object, ...]]:
        files = [file for file in lake.files(0, 2 * MIDNIGHT_MS) if file.sample == minute]
        names = ["kind", "group", "source", "group_status", "topic", "lag"]
        return [tuple(row.values()) for row in lake.read(files, names).to_pylist()]

    sample(0)
    assert seen(0) == [("cluster", "127.0.0.1:9", None, "UNKNOWN", None, None)]
    known = {"cluster": "127.0.0.1:9", "lag": 5, "group": "g"}
    query = {"cluster": "127.0.0.1:9", "lag": 5, "kind": "checkpoint", "group": "q", "source": "0"}
    keep(lake, 1, known, known | {"partition": 1}, query, known | {"cluster": "another"}, chunk=1)
    sample(2)
    expected = [("checkpoint", "q", "0", "UNKNOWN", None, None), ("group", "g", None, "UNKNOWN", None, None)]
    assert sorted(seen(2), key=str) == expected
    sample(3)
    assert sorted(seen(3), key=str) == expected
    (reader,) = read_lake(lake, MIDNIGHT_MS, 2 * MIDNIGHT_MS, Objective(), ["g"]).readers[:1]
    assert (reader.last_status, reader.unknown_minutes, reader.sample_count) == (LagStatus.UNKNOWN, 2, 3)


@in_event_loop
async def test_who_may_not_read_is_told_why_no_waiting_time_is_known(lake: Lake, tmp_path: Path) -> None:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def refuse(request: FetchRequest) -> FetchResponse:
        partitions = [PartitionData(partition_index=0, error_code=denied, high_watermark=-1)]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    async with scripted_cluster(2) as brokers:
        groups = ScriptedGroups(brokers, {})
        groups.offsets["g"] = {("t", 0): 40}
        for broker in brokers.brokers:
            broker.answers[ApiKey.FETCH] = refuse
        servers = ",".join(f"{host}:{port}" for host, port in brokers.bootstrap)
        target = resolve_target(Naming(bootstrap_servers=servers), {}, tmp_path)

        def sampled(minute: int, *, with_times: bool) -> ChunkDone:
            time_ms = MIDNIGHT_MS + minute * MINUTE
            (task,), _ = plan_chunks([Watched(target)], lake.shown, time_ms, minute, 1, with_times=with_times)
            return sample_chunk(task)

        done = await asyncio.to_thread(sampled, 0, with_times=True)
        for minute in range(1, 5):
            unasked = await asyncio.to_thread(sampled, minute, with_times=False)
            assert (unasked.group_count, unasked.failures) == (1, ()), "nobody has asked how long they have waited"
        assert brokers.brokers[0].requests(FetchRequest)[1:], "whether they are records was asked"
    assert done.group_count == 1
    (failure,) = done.failures
    assert failure.endswith("how long records have waited is not known: User:ANONYMOUS lacks read on topic t")


def test_folders_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("milk\n")
    with pytest.raises(BadRequest, match="the folder has other files in it"):
        Lake(str(tmp_path / "other")).prepare(1)
    with pytest.raises(NotFound, match="there is no lag history"):
        Lake(str(tmp_path / "absent")).check()
    made = Lake(str(tmp_path / "made"))
    made.prepare(3)
    assert made.prepare(7) == 3, "the number of chunks never changes"
    settings = tmp_path / "made" / "klamm.json"
    settings.write_text('{"format": 2, "chunks": 3}')
    with pytest.raises(BadRequest, match="a lag history of format 2; only 1 can be read"):
        made.prepare(3)
    settings.write_text('{"form')
    with pytest.raises(BadRequest, match=r"klamm\.json is damaged"):
        made.check()


def test_chunks_share_groups_out_and_stay() -> None:
    names = [f"group-{number}" for number in random.Random(1).sample(range(10**6), 2_000)]
    counts = [sum(chunk_of(name, 4) == chunk for name in names) for chunk in range(4)]
    assert sum(counts) == 2_000
    assert min(counts) > 400
    assert chunk_of("group-1", 4) == 0, "in every process, today and tomorrow"
