"""Where Spark's queries are, read from checkpoints and event logs: recorded ones, and incomplete ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from spark_traces import RECORDED, Made, event_lines, one_source, restore, write_checkpoint
from store_servers import BUCKET, PLACE, gs_server, s3_server

from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, Unreachable
from engine.admin.lag.spark_checkpoints import find_checkpoints, read_checkpoint
from engine.admin.lag.spark_positions import BATCHES_MAX, Query, ReaderKind
from engine.admin.lag.spark_traces import QueryTraces, find_event_logs, read_event_logs
from engine.admin.lag.stores import Entry, LocalStore, Location, expand, locate, whole_place
from engine.admin.lag.verdicts import Point
from engine.common.model import TopicPartition

ORDERS = TopicPartition("orders", 0)
NOW_MS = 1_795_000_000_000

# Source, topic, partition, planned, committed.
Place = tuple[str, str, int, int, int | None]
SCENES: dict[str, dict[str, set[Place]]] = {
    "stateless": {"stateless": {("0", "orders", 0, 0, 0), ("0", "orders", 1, 70, 70)}},
    "stateful": {"stateful": {("0", "clicks", 0, 0, 0), ("0", "clicks", 1, 20, 20)}},
    "join": {
        "join": {("0", "left", 0, 10, 10), ("1", "right", 0, 20, 20)},
        "union": {("0", "left", 0, 10, 10), ("1", "left", 0, 10, 10), ("1", "right", 0, 20, 20)},
    },
    "foreach-batch": {"foreach-batch": {("0", "each", 0, 10, 10)}},
    "available-now": {"available-now": {("0", "nightly", 0, 10, 10), ("0", "nightly", 1, 0, 0)}},
    "killed": {"killed": {("0", "payments", 0, 0, 0), ("0", "payments", 1, 20, 10)}},
    "grown": {"grown": {("0", "grows", 0, 19, 19), ("0", "grows", 1, 0, 0), ("0", "grows", 2, 0, 0)}},
    "made-again": {"made-again": {("0", "short-lived", 0, 10, 10)}},
    "beside-files": {"beside-files": {("0", "mixed", 0, 10, 10), ("0", "mixed", 1, 0, 0)}},
}


def places(query: Query) -> set[Place]:
    return {(p.source, p.topic, p.partition, p.planned, p.committed) for p in query.positions()}


def total(found: set[Place]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return sums by topic: Spark's producer decides which partition a record goes to."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for source, topic, _, planned, committed in found:
        before = sums.get((source, topic), (0, 0))
        sums[source, topic] = (before[0] + planned, before[1] + (committed or 0))
    return sums


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0"])
@pytest.mark.parametrize("scene", SCENES)
def test_recorded_checkpoints(version: str, scene: str, tmp_path: Path) -> None:
    for name, expected in SCENES[scene].items():
        query = read_checkpoint(locate(str(restore(RECORDED / version / scene / name, tmp_path))))
        committed = places(query)
        assert {place[:3] for place in committed} == {place[:3] for place in expected}
        assert total(committed) == total(expected)
        assert (query.kind, query.name, query.job) == (ReaderKind.CHECKPOINT, None, name)
        taken = [
            batch.committed_ms - batch.planned_ms for batch in query.finished if batch.planned_ms and batch.committed_ms
        ]
        assert taken
        assert all(0 < taken_ms < 60_000 for taken_ms in taken)
        assert (query.in_flight is not None) == (scene == "killed")


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0"])
@pytest.mark.parametrize("scene", SCENES)
def test_recorded_event_logs_agree_with_checkpoints(version: str, scene: str, tmp_path: Path) -> None:
    logs = find_event_logs(locate(str(RECORDED / version / scene / "events")))
    queries, failures = read_event_logs(logs)
    assert failures == []
    assert {query.name for query in queries} == SCENES[scene].keys()
    for query in queries:
        checkpoint = read_checkpoint(locate(str(restore(RECORDED / version / scene / str(query.name), tmp_path))))
        assert query.query_id == checkpoint.query_id
        assert query.run_id
        for source in checkpoint.kafka_sources:
            assert query.committed(source) == checkpoint.committed(source)
        ends = {batch.batch_id: batch.ends for batch in checkpoint.finished}
        assert ends == {batch.batch_id: batch.ends for batch in query.finished if batch.batch_id in ends}
        # The end of a batch comes from a file here, and from the query there.
        times = {batch.batch_id: batch.committed_ms for batch in query.finished}
        assert all(
            abs((times[batch.batch_id] or 0) - (batch.committed_ms or 0)) < 2_000 for batch in checkpoint.finished
        )


def test_named_sources(tmp_path: Path) -> None:
    query = read_checkpoint(locate(str(restore(RECORDED / "4.3.0/named-sources/named-sources", tmp_path))))
    assert places(query) == {("orders_src", "orders", 0, 10, 10), ("orders_src", "orders", 1, 5, 5)}
    assert set(query.source_ids) == {"orders_src", "rate_src"}


def test_old_batches_are_purged_and_only_the_latest_are_read(tmp_path: Path) -> None:
    query = read_checkpoint(locate(str(restore(RECORDED / "4.0.0/stateless/stateless", tmp_path))))
    assert [batch.batch_id for batch in query.batches] == [4, 5, 6, 7]
    # The start of batch 4 went with batch 3. The start of the source is another offset.
    first = query.points("0", TopicPartition("orders", 1))[0]
    assert (first.time_ms, first.committed) == (query.batches[1].planned_ms, 40)
    many = [one_source(NOW_MS + n * 1000, NOW_MS + n * 1000 + 500, "orders", n + 1) for n in range(40)]
    query = read_checkpoint(locate(str(write_checkpoint(tmp_path / "many", many))))
    assert [batch.batch_id for batch in query.batches] == list(range(40 - BATCHES_MAX, 40))
    assert query.committed("0") == {ORDERS: 40}


def test_batches_come_by_number_and_may_have_gaps(tmp_path: Path) -> None:
    """A query with asynchronous progress skips batches in both logs."""
    folder = write_checkpoint(tmp_path / "q", [one_source(NOW_MS + n, NOW_MS + n + 1, "orders", n) for n in range(12)])
    for batch in (1, 3, 5, 7, 9):
        (folder / "offsets" / str(batch)).unlink()
        (folder / "commits" / str(batch)).unlink()
    (folder / "offsets" / "10").unlink()
    query = read_checkpoint(locate(str(folder)))
    assert [batch.batch_id for batch in query.batches] == [0, 2, 4, 6, 8, 11]
    (folder / "commits" / "11").unlink()
    query = read_checkpoint(locate(str(folder)))
    assert query.in_flight is not None
    assert (query.in_flight.batch_id, places(query)) == (11, {("0", "orders", 0, 11, 8)})
    (folder / "commits" / "6").unlink()
    assert read_checkpoint(locate(str(folder))) == replace(query, batches=[b for b in query.batches if b.batch_id != 6])
    shutil.copy(folder / "offsets" / "8", folder / "offsets" / "12")
    assert read_checkpoint(locate(str(folder))).in_flight == query.in_flight, "the next one does not run yet"


def test_what_is_half_there(tmp_path: Path) -> None:
    folder = write_checkpoint(
        tmp_path / "q", [one_source(NOW_MS, NOW_MS + 5, "orders", 3), one_source(NOW_MS + 9, None, "orders", 8)]
    )
    place = locate(str(folder))
    newest = folder / "offsets" / "1"
    text = newest.read_text()
    for leftover in (".1.crc", ".2.0b1c.tmp", "_1"):
        (folder / "offsets" / leftover).write_text("v1")
    assert places(read_checkpoint(place)) == {("0", "orders", 0, 8, 3)}
    for length in range(0, len(text), 3):
        newest.write_text(text[:length])
        assert places(read_checkpoint(place)) == {("0", "orders", 0, 3, 3)}, "it does not run yet"
    newest.write_text(text)
    (folder / "commits" / "0").write_text("")
    assert places(read_checkpoint(place)) == {("0", "orders", 0, 8, 3)}, "that it is there is what counts"
    (folder / "metadata").unlink()
    assert read_checkpoint(place).query_id == ""
    (folder / "offsets" / "0").write_text(text[:30])
    with pytest.raises(BadRequest, match=r"damaged: .*offsets/0: ") as caught:
        read_checkpoint(place)
    assert "event log" in str(caught.value.hint)


def test_a_query_that_never_finished_a_batch(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "q", [one_source(NOW_MS, None, "orders", 8)])
    assert places(read_checkpoint(locate(str(folder)))) == {("0", "orders", 0, 8, None)}
    (folder / "sources" / "0").mkdir(parents=True)
    (folder / "sources" / "0" / "0").write_bytes(b'\0v1\n{"orders":{"0":2}}')
    assert places(read_checkpoint(locate(str(folder)))) == {("0", "orders", 0, 8, 2)}, "where a restart would begin"
    (folder / "offsets" / "0").unlink()
    query = read_checkpoint(locate(str(folder)))
    assert (query.last_batch, places(query), query.kafka_sources) == (None, set(), [])


@pytest.mark.parametrize("part", ["offsets", "commits"])
def test_foreign_versions_are_refused_by_name(tmp_path: Path, part: str) -> None:
    folder = write_checkpoint(tmp_path / "q", [one_source(NOW_MS, NOW_MS + 1, "orders", 8)])
    file = folder / part / "0"
    file.write_text(file.read_text().replace("v1", "v9", 1))
    refusal = r"version 9 of Spark's (offset|commit) log; only versions 1 to [23] can be read"
    with pytest.raises(BadRequest, match=refusal):
        read_checkpoint(locate(str(folder)))
    if part == "offsets":
        (folder / "commits" / "0").unlink()
        with pytest.raises(BadRequest, match=refusal):
            read_checkpoint(locate(str(folder)))


def test_checkpoints_are_found_below_a_root(tmp_path: Path) -> None:
    batches = [one_source(NOW_MS, NOW_MS + 1, "orders", 1)]
    for name in ("b", "a/_checkpoints/x", "a/deeper/y", "job=orders", "team=a/job=b/q", "table/day=1/z", ".hidden/z"):
        write_checkpoint(tmp_path / name, batches)
    (tmp_path / "table" / "_delta_log").mkdir()
    (tmp_path / "a" / "offsets").mkdir()
    (tmp_path / "b" / "state" / "0").mkdir(parents=True)
    for link, target in (("a/round", ".."), ("itself", "itself"), ("nowhere", "absent"), ("z", "a/deeper/y")):
        (tmp_path / link).symlink_to(target)

    def found(text: str) -> list[str]:
        roots = expand(text)
        return [place.shown.removeprefix(f"{tmp_path}/") for root in roots for place in find_checkpoints(root)]

    named = ["a/_checkpoints/x", "a/deeper/y", "b", "job=orders", "team=a/job=b/q", "z"]
    assert found(str(tmp_path)) == named, "a table's partitions hold no checkpoints, and no link leads round"
    assert found(f"{tmp_path}/b/") == ["b/"]
    assert found(f"{tmp_path}/[a]/*/*") == ["a/_checkpoints/x", "a/deeper/y"]
    assert found(f"file://{tmp_path}/b") == [f"file://{tmp_path}/b"]
    with pytest.raises(NotFound, match="no such folder"):
        found(f"{tmp_path}/absent")
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotFound, match="a checkpoint is a folder, and this is a file"):
        found(f"{tmp_path}/file")
    with pytest.raises(NotFound, match="nothing matches that pattern"):
        found(f"{tmp_path}/absent*")
    with pytest.raises(BadRequest, match="there is no checkpoint of a Spark query"):
        found(f"{tmp_path}/b/state")
    with pytest.raises(BadRequest, match="no file system is known for hdfs://"):
        found("hdfs://n1/x")


def test_patterns_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "other", ".hidden"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert [place.shown for place in expand("o*")] == ["one", "other"]
    assert [place.shown for place in expand("*")] == ["one", "other"]
    assert [place.shown for place in expand("./o?e")] == ["./one"]


class Refusing(LocalStore):
    """A disk that refuses all access."""

    def list(self, path: str) -> list[Entry]:
        raise PermissionError(13, "Permission denied", path)


def test_a_folder_that_may_not_be_read() -> None:
    place = Location(Refusing(), "/q", "/q")
    for look in (find_checkpoints, find_event_logs, read_checkpoint):
        with pytest.raises(BadRequest, match="permission denied") as caught:
            look(place)
        assert "read access" in str(caught.value.hint)


def test_one_damaged_trace_hides_no_other(tmp_path: Path) -> None:
    good = write_checkpoint(tmp_path / "all" / "good", [one_source(NOW_MS, NOW_MS + 1, "orders", 1)])
    bad = write_checkpoint(tmp_path / "all" / "bad", [one_source(NOW_MS, NOW_MS + 1, "orders", 1)])
    (bad / "offsets" / "0").write_text("v7\n{}\n-")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "local-1").write_text(event_lines([one_source(NOW_MS, NOW_MS + 1, "orders", 1)], name="told"))
    (logs / "local-2").write_text("milk\n")
    queries, failures = QueryTraces((str(tmp_path / "all"),), (str(logs),)).read()
    assert [(query.path, query.job) for query in queries] == [(str(good), "told")], "one query, by its id"
    assert [str(failure.where) for failure in failures] == [str(bad), str(logs / "local-2")]
    assert ["newer klamm" in str(failures[0].hint), "spark.eventLog.dir" in str(failures[1].hint)] == [True, True]


def test_a_query_is_one_whatever_tells_of_it(tmp_path: Path) -> None:
    """Its checkpoint has the batch that runs, its event log the name and the logs' ends; the newest position wins."""
    done = [Made(NOW_MS + n, NOW_MS + n + 1, ({ORDERS: n + 1},), ({ORDERS: 50 + n},)) for n in range(3)]
    folder = write_checkpoint(tmp_path / "all" / "q", [*done, one_source(NOW_MS + 9, None, "orders", 8)])
    other = write_checkpoint(tmp_path / "all" / "copied", done[:1])
    foreign = write_checkpoint(tmp_path / "all" / "without-id", done[:1])
    (foreign / "metadata").unlink()
    (tmp_path / "log").write_text(event_lines(done, name="told", run_id="r-7"))
    traces = QueryTraces((str(tmp_path / "all"),), (str(tmp_path / "log"),))
    queries, failures = traces.read()
    assert failures == []
    by_path = {query.path: (query.name, query.run_id, places(query)) for query in queries}
    assert by_path == {
        str(folder): ("told", "r-7", {("0", "orders", 0, 8, 3)}),
        str(other): ("told", None, {("0", "orders", 0, 1, 1)}),
        str(foreign): (None, None, {("0", "orders", 0, 1, 1)}),
    }
    query = next(query for query in queries if query.path == str(folder))
    assert query.points("0", ORDERS) == [(NOW_MS + 1, 1, 51), (NOW_MS + 2, 2, 52), (NOW_MS + 9, 3, None)]
    shutil.rmtree(other)
    shutil.rmtree(foreign)
    (tmp_path / "log").write_text(event_lines([*done, *(one_source(NOW_MS, NOW_MS + 1, "orders", n) for n in (8, 9))]))
    (query,) = traces.read()[0]
    assert (query.kind, places(query)) == (ReaderKind.EVENT_LOG, {("0", "orders", 0, 9, 9)}), "the checkpoint is older"


def test_a_damaged_old_batch_hides_no_newer_one(tmp_path: Path) -> None:
    batches = [one_source(NOW_MS + n, NOW_MS + n + 1, "orders", n + 1) for n in range(4)]
    folder = write_checkpoint(tmp_path / "q", batches)
    for old, damage in ((0, b"v9"), (1, b"\xff\xfe"), (2, b'v1\n{}\n{"orders":{"0":"2"}}')):
        (folder / "offsets" / str(old)).write_bytes(damage)
    assert places(read_checkpoint(locate(str(folder)))) == {("0", "orders", 0, 4, 4)}
    (folder / "offsets" / "3").write_text('v1\n{}\n{"orders":{"0":"4"}}')
    with pytest.raises(BadRequest, match=r"damaged: .*offsets/3: the offset of orders-0 is '4', not a number"):
        read_checkpoint(locate(str(folder)))
    (folder / "offsets" / "3").write_bytes(b"\xff\xfe")
    with pytest.raises(BadRequest, match=r"damaged: .*offsets/3: not text"):
        read_checkpoint(locate(str(folder)))


def test_a_query_that_was_started_again_is_one_query(tmp_path: Path) -> None:
    first = [one_source(NOW_MS + n * 1000, NOW_MS + n * 1000 + 500, "orders", n + 1) for n in range(3)]
    second = [*first, one_source(NOW_MS + 9000, NOW_MS + 9500, "orders", 9)]
    (tmp_path / "local-1").write_text(event_lines(first, run_id="r-1"))
    lines = event_lines(second, run_id="r-2").splitlines(keepends=True)
    (tmp_path / "local-2").write_text("".join(lines[2:]))
    ((query,), failures) = read_event_logs(find_event_logs(locate(str(tmp_path))))
    assert failures == []
    assert (query.run_id, [batch.batch_id for batch in query.batches]) == ("r-2", [0, 1, 2, 3])
    assert places(query) == {("0", "orders", 0, 9, 9)}


def test_a_log_cut_in_the_middle_of_a_line(tmp_path: Path) -> None:
    text = event_lines([one_source(NOW_MS + n, NOW_MS + n + 1, "orders", n + 1) for n in range(3)])
    log = tmp_path / "local-1.inprogress"
    log.write_text(text[:-40])
    ((query,), _) = read_event_logs([locate(str(log))])
    assert places(query) == {("0", "orders", 0, 2, 2)}
    log.write_text(text.replace("batchId", "batch", 1))
    ((), (failure,)) = read_event_logs([locate(str(log))])
    assert "line 1: not an event of a query" in str(failure)


def test_a_batch_that_is_told_again_counts_once(tmp_path: Path) -> None:
    """Triggers without data carry the number of the next batch."""
    batches = [one_source(NOW_MS, NOW_MS + 1, "orders", 1), one_source(NOW_MS + 5, NOW_MS + 6, "orders", 1)]
    idle = event_lines(batches).splitlines(keepends=True)
    real = event_lines([batches[0], one_source(NOW_MS + 9, NOW_MS + 12, "orders", 4)]).splitlines(keepends=True)
    log = tmp_path / "local-1"
    log.write_text("".join([*idle, real[1]]))
    ((query,), _) = read_event_logs([locate(str(log))])
    assert [(batch.batch_id, batch.committed_ms) for batch in query.batches] == [(0, NOW_MS + 1), (1, NOW_MS + 12)]


def test_the_listeners_lines_are_of_another_kind(tmp_path: Path) -> None:
    line = event_lines([one_source(NOW_MS, NOW_MS + 1, "orders", 1)]).replace("{", '{"Listener":"klamm",', 1)
    (tmp_path / "q.jsonl").write_text(line)
    ((query,), _) = read_event_logs(find_event_logs(locate(str(tmp_path))))
    assert query.kind is ReaderKind.LISTENER


def test_points_are_what_was_so_when_a_batch_was_planned() -> None:
    latest = ({ORDERS: 50},)
    batches = [
        Made(NOW_MS, NOW_MS + 500, ({ORDERS: 10},), ({ORDERS: 30},)),
        Made(NOW_MS + 1000, NOW_MS + 1500, ({ORDERS: 20},), latest),
    ]
    lines = event_lines(batches).replace('"startOffset":null', '"startOffset":"{\\"orders\\":{\\"0\\":4}}"', 1)
    query = _query_of(lines)
    assert query.points("0", ORDERS) == [Point(NOW_MS, 4, 30), Point(NOW_MS + 1000, 10, 50)]


def _query_of(lines: str) -> Query:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix="-log") as file:
        file.write(lines)
        file.flush()
        ((query,), _) = read_event_logs([locate(file.name)])
    return query


# -- Object stores on loopback: S3 by moto, Google's by an emulator


@pytest.fixture(scope="module", params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a Spark job left, in a bucket."""
    with s3_server() if request.param == "s3" else gs_server() as store:
        for name in ("killed/killed", "killed/events"):
            source = RECORDED / "4.0.0" / name
            for file in source.rglob("*"):
                if file.is_file():
                    # No folder is made: most of what writes into a store makes none.
                    with store.open_output_stream(f"{BUCKET}/{name}/{file.relative_to(source)}") as target:
                        target.write(file.read_bytes())
        yield f"s3a://{BUCKET}" if request.param == "s3" else PLACE


def test_checkpoints_and_event_logs_in_stores(bucket: str) -> None:
    queries, failures = QueryTraces((f"{bucket}/*",), (f"{bucket}/killed/events",)).read()
    assert failures == []
    (query,) = queries
    assert (query.kind, query.path) == (ReaderKind.CHECKPOINT, f"{bucket}/killed/killed")
    assert total(places(query)) == {("0", "payments"): (20, 10)}
    assert query.job == "killed", "its name is in the event log"
    ((killed,), _) = QueryTraces((), (f"{bucket}/killed/events",)).read()
    assert total(places(killed)) == {("0", "payments"): (10, 10)}
    with pytest.raises(NotFound, match="no such folder"):
        find_checkpoints(locate(f"{bucket}/absent"))


def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises((Unreachable, NotFound)) as caught:
        find_checkpoints(locate(f"s3a://{BUCKET}/x"))
    assert isinstance(caught.value, AdminError)


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(BadRequest, match="s3:// needs pyarrow, which is not installed"):
        locate("s3://x/y")


def test_fixtures_stay_as_they_are(tmp_path: Path) -> None:
    """Reading changes nothing."""
    copy = tmp_path / "copy"
    shutil.copytree(RECORDED / "4.0.0" / "killed", copy)
    before = sorted(path.name for path in copy.rglob("*"))
    QueryTraces((str(copy),), (str(copy / "events"),)).read()
    assert sorted(path.name for path in copy.rglob("*")) == before


def test_a_place_is_made_whole_for_processes_in_other_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert whole_place("checkpoints/*") == f"{tmp_path}/checkpoints/*"
    for place in ("/srv/checkpoints", "s3://lake/checkpoints", "hdfs:///checkpoints", "file:/srv/checkpoints"):
        assert whole_place(place) == place
