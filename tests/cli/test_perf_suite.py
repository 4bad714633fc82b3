"""``klamm perf suite`` on a running cluster: it measures, compares and draws, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from klamm_program import PROGRAM, Ran, environment, in_process

from cli.exit_codes import ExitCode
from cli.views.perf import suite_report, write_plot
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin, parse_addresses
from engine.admin.log_dirs.describing import LogDir, read_log_dirs
from engine.admin.perf import suite
from engine.admin.perf.suite import Case, CaseResult, WatchedDisks, experiments, rates_of
from engine.admin.perf.suite_run import Suite, SuiteOptions, WorkerFailed, WorkerFigures, cpu_seconds, find_processes
from engine.common.topic_names import SUITE_TOPIC_PREFIX
from engine.local.cluster import LocalCluster

SHORT = ["--seconds", "300ms", "--producer-bytes", "2M"]


@pytest.fixture
def program(
    live_cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", live_cluster.bootstrap_servers)
    return lambda *words: in_process(*words, capture=capsys)


def topics_of_suites(program: Callable[..., Ran]) -> list[str]:
    return [name for name in program("topics", "list").out.split() if name.startswith(SUITE_TOPIC_PREFIX)]


def test_a_run_measures_compares_draws_and_leaves_nothing(program: Callable[..., Ran], tmp_path: Path) -> None:
    chosen = ["--experiment", "record-size", "--experiment", "consumers", "--quick"]
    picture, earlier = tmp_path / "now.html", tmp_path / "before.json"
    ran = program("perf", "suite", *chosen, *SHORT, "--yes", "-o", "json", "--plot", str(picture))
    assert ran.code == 0, ran.err
    assert "10% of a disk is free" in ran.err, "what will be done is said first"
    cases = {(case["case"]["experiment"], case["case"]["label"]): case for case in ran.json["cases"]}
    assert list(cases) == [("record-size", "100"), ("record-size", "1,000"), ("consumers", "1"), ("consumers", "3")]
    sent = cases["record-size", "100"]
    assert sent["sent_records"] > 100
    assert 0 < sent["p50_latency_ms"] <= sent["p99_latency_ms"]
    assert sent["broker_cpu_s_per_million"] > 0, "the brokers are this user's, and here"
    assert cases["consumers", "3"]["read_records"] % 3 == 0, "each of them has read everything"
    assert cases["consumers", "3"]["sent_per_sec"] is None
    assert "<svg" in picture.read_text()
    assert topics_of_suites(program) == []
    earlier.write_text(ran.out)
    chosen = ["--experiment", "record-size", "--experiment", "pair", "--quick"]
    chosen += ["--seconds", "1s", "--producer-bytes", "2M"]
    again = program("perf", "suite", *chosen, "--yes", "--compare", str(earlier), "-o", "csv")
    header, *rows = csv.reader(again.out.splitlines())
    columns = [dict(zip(header, row, strict=True)) for row in rows]
    assert [column["case"] for column in columns] == ["100", "1,000", "1 + 1"]
    assert int(columns[0]["before_per_sec"]) == round(sent["sent_per_sec"])
    assert (columns[2]["before_per_sec"], columns[2]["ratio"]) == ("", ""), "there was no pair before"
    assert [column["published_per_sec"] for column in columns] == ["", "", "1220000"], "as in the articles"
    assert float(columns[2]["read_per_sec"]) > 0


def test_a_dry_run_says_what_would_be_done(program: Callable[..., Ran]) -> None:
    ran = program("perf", "suite", "--experiment", "producers", "--dry-run")
    assert (ran.code, ran.rows) == (0, [["producers", str(count), "0", "100", "6", "1"] for count in (1, 2, 3)])
    assert "producers: Producers, records of 100 bytes: 1, 2, 3" in ran.err
    assert "dry run: would load" in ran.err


def test_it_stops_where_a_disk_gets_full(program: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    async def half_full(*given: Any) -> list[LogDir]:
        dirs = await read_log_dirs(*given)
        return [replace(log_dir, usable_bytes=(log_dir.total_bytes or 0) // 2) for log_dir in dirs]

    monkeypatch.setattr(suite, "read_log_dirs", half_full)
    ran = program("perf", "suite", "--experiment", "pair", *SHORT, "--min-free", "51", "--yes", "-o", "json")
    assert ran.code == ExitCode.BAD_ANSWER
    assert "has only 50% left" in ran.json["stopped"]
    assert ran.json["cases"] == []
    assert topics_of_suites(program) == []


def test_it_does_not_begin_without_room(program: Callable[..., Ran]) -> None:
    ran = program("perf", "suite", "--experiment", "pair", "--producer-bytes", "1000T", "--yes", "-o", "json")
    assert ran.code == ExitCode.BAD_ANSWER
    assert ran.json["stopped"].startswith("no case has room: pair 1 + 1: it may write 1.1 PB to ")
    assert (ran.json["cases"], ran.json["left_topics"]) == ([], [])
    fitting = re.search(r"left out for lack of room: 1 of 1 case; none with --producer-bytes (\d+)", ran.err)
    assert fitting is not None and int(fitting[1]) > 0
    ran = program(
        "perf", "suite", "--experiment", "pair", "--producer-bytes", fitting[1], "--seconds", "300ms", "--yes"
    )
    assert ran.code == ExitCode.DONE, ran.err


def test_topics_that_stay_are_named_with_their_command(
    program: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(suite: Suite, *_: object) -> None:
        suite.stopped = "no broker can be reached"
        suite.left_topics = ["klamm-perf-suite-x-1", "klamm-perf-suite-x-2"]
        suite.topics_that_may_appear = ["klamm-perf-suite-x-3"]

    monkeypatch.setattr("engine.admin.perf.suite_run.Suite.run", run)
    ran = program("perf", "suite", "--experiment", "pair", "--yes", "-o", "json")
    assert ran.code == ExitCode.BAD_ANSWER
    assert ran.json["left_topics"] == ["klamm-perf-suite-x-1", "klamm-perf-suite-x-2"]
    assert ran.json["topics_that_may_appear"] == ["klamm-perf-suite-x-3"]
    assert "1 topic may still appear: klamm topics delete klamm-perf-suite-x-3" in ran.err
    assert "could not delete 2 topics: klamm topics delete klamm-perf-suite-x-1 klamm-perf-suite-x-2" in ran.err


def test_ctrl_c_takes_the_topics_away(program: Callable[..., Ran], live_cluster: LocalCluster, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [PROGRAM, "perf", "suite", "--experiment", "producers", "--seconds", "60s", "--yes",
         "-b", live_cluster.bootstrap_servers],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment(tmp_path), text=True,
    )  # fmt: skip
    assert process.stderr is not None
    while "1 of 3" not in (line := process.stderr.readline()):
        assert line, "it has ended"
    while not topics_of_suites(program):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert topics_of_suites(program) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--experiment", "luck"], "no such experiment: luck"),
        (["--plot", "now.png"], "ends with .svg or .html"),
        (["--compare", "-"], "--compare: stdin"),
    ],
)
def test_wrong_use(program: Callable[..., Ran], words: list[str], message: str) -> None:
    ran = program("perf", "suite", *words, "--yes")
    assert (ran.code, message in ran.err) == (ExitCode.USAGE, True), ran.err


def test_the_experiments_are_those_of_the_articles() -> None:
    cases = {experiment.name: experiment.cases for experiment in experiments(3)}
    assert [case.producers for case in cases["producers"]] == [1, 2, 3]
    assert [case.record_bytes for case in cases["record-size"]] == [10, 100, 1000, 10_000]
    assert [case.partitions for case in cases["partitions"]] == [1, 3, 6, 9]
    assert [case.replicas for case in cases["replicas"]] == [1, 2, 3]
    assert [case.consumers for case in cases["consumers"]] == [1, 2, 3]
    assert [(case.producers, case.consumers, case.is_pair) for case in cases["pair"]] == [(1, 1, True)]
    assert [
        case.replicas for experiment in experiments(1) if experiment.name == "replicas" for case in experiment.cases
    ] == [1]


def results() -> list[CaseResult]:
    (chosen,) = (experiment for experiment in experiments(3) if experiment.name == "replicas")
    rates = (2000.0, 1000.0, None)
    return [
        CaseResult(case, sent_per_sec=rate, error=None if rate else "producer: <refused>")
        for case, rate in zip(chosen.cases, rates, strict=True)
    ]


def test_an_earlier_run_stands_beside(tmp_path: Path) -> None:
    chosen = [experiment for experiment in experiments(3) if experiment.name == "replicas"]
    report = suite_report(chosen, results(), {}, None, {("replicas", "1"): 4000.0}, exit_code=ExitCode.DONE)
    assert [row[-3:-1] for row in report.table.rows] == [(4000, 0.5), (None, None), (None, None)]
    picture = tmp_path / "x.svg"
    write_plot(picture, chosen, results(), {("replicas", "1"): 4000.0})
    drawn = ElementTree.fromstring(picture.read_text())
    widths = [
        float(rect.get("width") or 0)
        for rect in drawn.iter("{http://www.w3.org/2000/svg}rect")
        if rect.get("fill") != "white"
    ]
    assert widths == [260.0, 520.0, 130.0, 0.0, 0.0, 0.0], "half of what was before, and so on"
    page = tmp_path / "x.html"
    write_plot(page, chosen, results(), None)
    assert "&lt;refused&gt;" in page.read_text()


def test_a_quick_run_ends_within_two_minutes(program: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float | None] = []

    class BrokerReading(Exception):
        pass

    def remember(_: object, cluster: object, processes: object, disks: object, options: SuiteOptions) -> None:
        limits.append(options.deadline_s)
        raise BrokerReading

    monkeypatch.setattr("engine.admin.perf.suite_run.Suite.__init__", remember)
    for quick in ((), ("--quick",)):
        program("perf", "suite", *quick, "--yes")
    (long, short) = limits
    assert long is None
    assert short is not None and short < 120, "no case begins that would end later"
    cases = [case for experiment in experiments(3, is_quick=True) for case in experiment.cases]
    assert len(cases) < sum(len(experiment.cases) for experiment in experiments(3))


def test_rates_come_back_from_a_document() -> None:
    pair = {"experiment": "pair", "label": "1 + 1", "consumers": 1, "is_pair": True}
    reader = {"experiment": "consumers", "label": "3", "consumers": 3, "is_pair": False}
    cases = [
        {"case": pair, "sent_per_sec": 5.0, "read_per_sec": 4.0},
        {"case": reader, "sent_per_sec": None, "read_per_sec": 9.0},
        {"case": pair | {"label": "x"}, "sent_per_sec": None, "read_per_sec": None},
    ]
    assert rates_of(json.loads(json.dumps({"format": 1, "cases": cases}))) == {
        ("pair", "1 + 1"): 5.0,
        ("consumers", "3"): 9.0,
    }
    for bad in ([], {}, {"format": 2, "cases": []}, {"format": 1, "cases": [{}]}):
        with pytest.raises(ValueError):
            rates_of(bad)
    assert Case("x", "y", consumers=1).is_pair is False


def test_brokers_of_this_machine_are_found_by_their_sockets(live_cluster: LocalCluster) -> None:
    addresses = [
        (host, int(port))
        for host, _, port in (address.rpartition(":") for address in live_cluster.bootstrap_servers.split(","))
    ]
    processes = find_processes(addresses)
    assert processes is not None
    assert len(processes) == 2
    used = cpu_seconds(processes)
    assert used is not None
    assert used > 0
    assert find_processes([*addresses, ("192.0.2.1", 9092)]) is None, "one of them is elsewhere"
    assert find_processes([("127.0.0.1", 1)]) is None, "nobody listens there"


class QuickWorkers:
    """Measure nothing; the second producer fails."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.produced = 0

    async def produce(
        self, topic: str, record_bytes: int, duration_s: float, record_count_max: int, start_at_s: float
    ) -> WorkerFigures:
        self.produced += 1
        await asyncio.sleep(self.pause_s)
        if self.produced == 2:
            raise WorkerFailed("producer: it was refused")
        return WorkerFigures(10, 5.0, 1.0, 1.0, 2.0, 3.0, 4.0)

    async def consume(self, topic: str, record_count: int, duration_s: float, start_at_s: float) -> WorkerFigures:
        return WorkerFigures(record_count, 7.0, 1.0)


def run_quickly(cluster: LocalCluster, options: SuiteOptions, pause_s: float = 0.0) -> Suite:
    chosen = experiments(2, names=["partitions", "consumers"])

    async def run() -> Suite:
        addresses = parse_addresses(cluster.bootstrap_servers)
        async with Cluster(ClusterTarget("tried", Origin.OPTIONS, bootstrap=addresses)) as opened:
            disks = await WatchedDisks.open(opened, options.free_share_min)
            suite = Suite(opened, QuickWorkers(pause_s), disks, options)
            await suite.run(chosen, lambda _: None)
            return suite

    return asyncio.run(run())


def test_a_case_that_fails_does_not_hold_up_the_others(live_cluster: LocalCluster, program: Callable[..., Ran]) -> None:
    suite = run_quickly(live_cluster, SuiteOptions(lead_s=0.0))
    assert [result.error for result in suite.results] == [
        None,
        "producer: it was refused",
        None,
        None,
        None,
        None,
        None,
    ]
    assert suite.results[-1].rate == 21.0, "three consumers"
    assert (suite.stopped, suite.left_topics) == (None, [])
    assert topics_of_suites(program) == []


def test_no_case_begins_that_would_end_too_late(live_cluster: LocalCluster) -> None:
    suite = run_quickly(live_cluster, SuiteOptions(seconds=1.0, lead_s=0.0, deadline_s=1.0001), pause_s=0.4)
    assert 1 <= len(suite.results) < 7
    assert suite.stopped == f"the time is up after {len(suite.results)} of 7 cases"
