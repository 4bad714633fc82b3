"""``klamm perf`` through the real program and a running cluster: Kafka's lines, every form, and the actual records."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
from itertools import accumulate
from pathlib import Path

import pytest
import yaml
from golden import Seen, check_json
from klamm_program import PROGRAM, Program, environment, klamm
from lag_story import Steady
from patience import wait_for
from segments_on_disk import codecs_on_disk, stored_batches

from engine.local.cluster import LocalCluster

WINDOW = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency\."
)
TOTAL = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency, "
    r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th\."
)
CONSUMER_HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
CONSUMER_ROW = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}, "
    r"(\d+\.\d{4}), \d+\.\d{4}, (\d+), \d+\.\d{4}, \d+, \d+, \d+\.\d{4}, \d+\.\d{4}"
)


@pytest.fixture
def program(commands: Program, topic_name: str) -> Program:
    """Runs commands against the cluster, which has a topic of two partitions on both brokers."""
    assert commands("topics", "create", topic_name, "--partitions", "2", "--replication-factor", "2").code == 0
    return commands


def values(program: Program, topic: str) -> list[str]:
    return program("consume", topic, "--until-end").out.splitlines()


def test_kafkas_lines(program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path) -> None:
    where = ("--bootstrap-server", live_cluster.bootstrap_servers)
    load = ("--topic", topic_name, "--num-records", "20000", "--record-size", "100")
    ran = klamm("perf", "producer", *load, *where, folder=tmp_path)
    total = TOTAL.fullmatch(ran.out.rstrip("\n"))
    assert (ran.code, ran.err, total is not None, total and total[1]) == (0, "", True, "20000")
    sent = values(program, topic_name)
    assert len(sent) == 20_000
    assert all(len(value) == 100 and value.isalpha() and value.isupper() for value in sent)
    read = ("--topic", topic_name, "--messages", "20000")
    header, row = klamm("perf", "consumer", *read, *where, folder=tmp_path).out.splitlines()
    matched = CONSUMER_ROW.fullmatch(row)
    assert (header, matched is not None, matched and matched[2]) == (CONSUMER_HEADER, True, "20000")


def test_a_throughput_is_kept_and_windows_are_told(program: Program, topic_name: str) -> None:
    load = ("--num-records", "3000", "--record-size", "50", "--throughput", "1500", "--reporting-interval", "500")
    ran = program("perf", "producer", topic_name, *load)
    *windows, last = ran.out.splitlines()
    assert all(WINDOW.fullmatch(window) for window in windows)
    assert len(windows) >= 2
    total = TOTAL.fullmatch(last)
    assert total is not None
    # A busy machine may make it slower, but nothing makes it faster.
    assert 100 < float(total[2]) < 1_510
    assert sum(int(window.split()[0]) for window in windows) <= 3000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(program: Program, topic_name: str, codec: str, live_cluster: LocalCluster) -> None:
    load = ("--num-records", "1000", "--record-size", "300", "--compression", codec)
    assert program("perf", "producer", topic_name, *load, "--acks", "all").code == 0
    assert len(values(program, topic_name)) == 1000
    leader = program("topics", "describe", topic_name, "-o", "json").json[0]["partitions"][0]["leader"]
    (log_dir,) = live_cluster.broker(leader).spec.log_dirs
    assert codecs_on_disk(log_dir, topic_name, 0) == {codec}
    read = program("perf", "consumer", topic_name, "--messages", "1000", "--decode", "-o", "json")
    assert (read.json["consumed_records"], read.json["consumed_mb"]) == (1000, round(300_000 / 2**20, 4))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_and_idempotence(program: Program, topic_name: str, acks: str, live_cluster: LocalCluster) -> None:
    load = ("--num-records", "5000", "--record-size", "20", "--batch-size", "1000")
    ran = program("perf", "producer", topic_name, *load, "--acks", acks, "-o", "json", "--print-metrics")
    assert ran.json["records_sent"] == 5000
    assert ran.json["metrics"]["retried_batch_count"] == 0
    assert ran.json["metrics"]["batch_size_avg_bytes"] <= 1000
    # Without acks=all the records may still be on their way to the other replica.
    wait_for(lambda: len(values(program, topic_name)) == 5000, "all records can be read")
    leader = program("topics", "describe", topic_name, "-o", "json").json[0]["partitions"][0]["leader"]
    (log_dir,) = live_cluster.broker(leader).spec.log_dirs
    batches = list(stored_batches(log_dir, topic_name))
    if acks == "all":
        assert len({batch.producer_id for batch in batches}) == 1
        ends = list(accumulate(batch.count for batch in batches))
        assert [batch.base_sequence for batch in batches] == [0, *ends[:-1]]
    else:
        assert {(batch.producer_id, batch.base_sequence) for batch in batches} == {(-1, -1)}


def test_several_topics_and_single_partitions(program: Program, topic_name: str) -> None:
    other = f"{topic_name}-b"
    assert program("topics", "create", other, "--partitions", "2", "--replication-factor", "1").code == 0
    load = ("--num-records", "4000", "--record-size", "10", "--batch-size", "500")
    ran = program("perf", "producer", "--topic", topic_name, "--topic", other, *load, "--partition", "1")
    assert ran.code == 0
    counts = [len(program("consume", name, "-e", "--partition", "1").out.splitlines()) for name in (topic_name, other)]
    assert sum(counts) == 4000
    assert all(counts), "both have their share, the slower leader's is smaller"
    assert program("consume", topic_name, "-e", "--partition", "0").out == ""


def test_payloads(program: Program, topic_name: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one|two|three")
    load = ("--num-records", "300", "--payload-file", "in.txt", "--payload-delimiter", "|")
    assert program("perf", "producer", topic_name, *load).code == 0
    assert set(values(program, topic_name)) == {"one", "two", "three"}
    rising = f"{topic_name}-n"
    assert program("topics", "create", rising, "--partitions", "2", "--replication-factor", "1").code == 0
    slow = ("--throughput", "5000", "--linger-ms", "2")
    assert program("perf", "producer", rising, "--num-records", "2000", "--payload-monotonic", *slow).code == 0
    assert sorted(map(int, values(program, rising))) == list(range(2000))


def test_every_form(program: Program, topic_name: str) -> None:
    load = ("perf", "producer", topic_name, "--num-records", "600", "--record-size", "10", "--throughput", "2000")
    load = (*load, "--reporting-interval", "100", "--print-metrics", "-o")
    document = program(*load, "json")
    check_json("perf producer", Seen(document.code, document.out, ""))
    assert (document.json["records_sent"], document.json["sent_bytes"]) == (600, 6000)
    assert document.json["windows"]
    assert set(yaml.safe_load(program(*load, "yaml").out)) == set(document.json)
    lines = [json.loads(line) for line in program(*load, "jsonl").out.splitlines()]
    assert [line["kind"] for line in lines] == ["window"] * (len(lines) - 1) + ["total"]
    rows = list(csv.DictReader(io.StringIO(program(*load, "csv").out)))
    assert [row["kind"] for row in rows[:-1]] == ["window"] * (len(rows) - 1)
    assert (rows[-1]["kind"], rows[-1]["records_sent"]) == ("total", "600")
    assert "producer-metrics:batch-count : " in program(*load, "plain").out

    read = ("perf", "consumer", topic_name, "--messages", "3000", "-o")
    document = program(*read, "json")
    check_json("perf consumer", Seen(document.code, document.out, ""))
    assert document.json["consumed_records"] >= 3000
    table = list(csv.reader(io.StringIO(program(*read, "csv").out)))
    assert (", ".join(table[0]), len(table)) == (CONSUMER_HEADER, 2)
    assert CONSUMER_ROW.fullmatch(program(*read, "plain", "--hide-header").out.rstrip("\n"))
    windows = ("--messages", "100000", "--timeout", "0.5", "--show-detailed-stats", "--reporting-interval", "150")
    detailed = program(*read, "plain", *windows)
    header, *rows_of_windows = detailed.out.splitlines()
    assert header == f"time, threadId, {CONSUMER_HEADER.split(', ', 2)[2]}"
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}, 0, .*", row) for row in rows_of_windows)
    short = program(*read, "plain", "--show-detailed-stats", "--reporting-interval", "60000").out.splitlines()
    assert (short[0], len(short)) == (header, 2), "a run that is shorter than a window has one line all the same"
    document = program(*read, "json", *windows)
    check_json("perf consumer", Seen(document.code, document.out, ""))
    assert document.json["windows"]


def test_a_consumer_that_gets_too_little_says_so(program: Program, topic_name: str) -> None:
    assert program("perf", "producer", topic_name, "--num-records", "10", "--record-size", "10").code == 0
    ran = program("perf", "consumer", topic_name, "--messages", "11", "--timeout", "3")
    assert (ran.code, ran.err) == (
        1, "warning: 10 of 11 records came, then none for 3 s; --timeout SECONDS waits longer\n",
    )  # fmt: skip
    row = CONSUMER_ROW.fullmatch(ran.out.splitlines()[1])
    assert row is not None and row[2] == "10"
    nothing = program("perf", "consumer", topic_name, "--messages", "1", "--from-latest", "--timeout", "0.5")
    assert (nothing.code, nothing.out) == (1, "")


def test_under_the_names_of_kafkas_tools(program: Program, topic_name: str, tmp_path: Path) -> None:
    """Six digits of the rate, what is sent, and that too few came: as Kafka 3.9 prints them, to the byte."""
    (tmp_path / "in").write_text("a\nbb\n")
    load = ("--topic", topic_name, "--num-records", "10", "--throughput", "-1", "--payload-file", str(tmp_path / "in"))
    sent = program("kafka-producer-perf-test", *load, "--producer-props", "acks=1").out.splitlines()
    assert sent[:2] == [f"Reading payloads from: {tmp_path / 'in'}", "Number of messages read: 2"]
    assert re.fullmatch(r"10 records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), .* ms 99\.9th\.", sent[2])
    read = program("kafka-consumer-perf-test", "--topic", topic_name, "--messages", "11", "--timeout", "500")
    header, warning, row = read.out.splitlines()
    assert (read.code, header, CONSUMER_ROW.fullmatch(row) is not None) == (0, CONSUMER_HEADER, True)
    assert warning == (
        "WARNING: Exiting before consuming the expected number of messages: timeout (500 ms) exceeded. You can use the "
        "--timeout option to increase the timeout."
    )


def test_a_group_shares_the_partitions(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path
) -> None:
    """A group with one member of ours and one of librdkafka reads everything once, from its last offset on.

    Ours leaves after its first records, and librdkafka's continues where ours has committed.
    """
    group = f"{topic_name}-g"
    load = ("perf", "producer", topic_name, "--num-records", "2000", "--record-size", "10", "--batch-size", "200")
    assert program(*load).code == 0
    alone = program("perf", "consumer", topic_name, "--group", group, "--messages", "2000", "-o", "json")
    assert (alone.code, alone.json["consumed_records"]) == (0, 2000)
    assert alone.json["rebalance_time_ms"] > 0
    other = Steady(live_cluster.bootstrap_servers, group, topic_name)
    where = ["-b", live_cluster.bootstrap_servers, "--timeout", "40", "-o", "json"]
    command = [PROGRAM, "perf", "consumer", topic_name, "--group", group, "--messages", "1", *where]
    ours = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(tmp_path))

    def both_share() -> bool:
        rows = program("groups", "describe", group, "-o", "json").json[0]["partitions"]
        return len({row["consumer_id"] for row in rows} - {None}) == 2

    try:
        wait_for(both_share, "each member has a partition")
        assert program(*load).code == 0
        output, _ = ours.communicate(timeout=60)
        wait_for(lambda: program("lag", group, "--samples", "1", "-o", "json").json[0]["lag"] == 0, "all is committed")
    finally:
        other.close()
    share = json.loads(output)["consumed_records"]
    assert (share + other.read, share > 0) == (2000, True)


def test_kafkas_own_way_of_saying_it(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "p.properties").write_text("acks=0\nbatch.size=100\nlinger.ms=1\n")
    ran = klamm(
        "perf", "producer", "--topic", topic_name, "--num-records", "100", "--record-size", "40", "--throughput", "-1",
        "--print-metrics", "--producer.config", tmp_path / "p.properties", "--producer-props", "acks=1",
        f"bootstrap.servers={live_cluster.bootstrap_servers}", "batch.size=3000", "buffer.memory=1", folder=tmp_path,
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, "warning: buffer.memory has no effect here\n")
    assert "producer-metrics:batch-count : 2\n" in ran.out, "batches of 3000 bytes, not of 100"
    (tmp_path / "c.properties").write_text(f"bootstrap.servers={live_cluster.bootstrap_servers}\ngroup.id=g\n")
    read = (
        "--topic",
        topic_name,
        "--messages",
        "100",
        "--consumer.config",
        tmp_path / "c.properties",
        "--threads",
        "2",
    )
    ran = klamm("perf", "consumer", *read, folder=tmp_path)
    assert (ran.code, ran.err) == (0, "warning: --threads has no effect here\n")


REFUSED = [
    (["producer", "--num-records", "1", "--record-size", "1"], 2, "no topic is named"),
    (["producer", "T", "--record-size", "1"], 2, "how many records? give --num-records N"),
    (["producer", "T", "--num-records", "1"], 2, "give one of --record-size"),
    (["producer", "T", "--num-records", "1", "--record-size", "1", "--payload-monotonic"], 2, "give one of"),
    (["producer", "T", "--num-records", "0", "--record-size", "1"], 2, "0 is not at least 1"),
    (["producer", "T", "--num-records", "1", "--record-size", "1", "--throughput", "0"], 2, "--throughput must be"),
    (["producer", "T", "--num-records", "1", "--record-size", "1", "--acks", "2"], 2, "acks are all, 1 or 0"),
    (["producer", "T", "--num-records", "1", "--payload-file", "absent"], 2, "no such file: absent"),
    (["producer", "T", "--num-records", "1", "--record-size", "1", "--producer-props", "x"], 2, "NAME=VALUE"),
    (["producer", "T", "--num-records", "1", "--record-size", "1", "interceptor.classes=a.B"], 2, "Java classes"),
    (["producer", "T", "--num-records", "1", "--record-size", "1", "--transactional-id", "t", "acks=1"], 2, "acks=all"),
    (["producer", "absent", "--num-records", "1", "--record-size", "1"], 2, "topic 'absent' does not exist"),
    (["producer", "T", "--num-records", "1", "--record-size", "1", "--partition", "7"], 2, "has no partition 7"),
    (["producer", "T", "--num-records", "1", "--record-size", "2000000"], 4, "MESSAGE_TOO_LARGE"),
    (["consumer", "--messages", "1"], 2, "no topic is named"),
    (["consumer", "T"], 2, "how many records? give --messages N"),
    (["consumer", "T", "--topic", "other", "--messages", "1"], 2, "two topics are named"),
    (["consumer", "T", "--messages", "1", "--group", "g", "--partition", "0"], 2, "--group needs a name"),
    (["consumer", "absent", "--messages", "1"], 2, "topic 'absent' does not exist"),
    (["consumer", "T", "--messages", "1", "--partition", "7"], 2, "has no partition 7"),
    (["consumer", "T", "--messages", "1", "--fetch-size", "0"], 2, "0 is not at least 1"),
]


def test_wrong_use(program: Program, topic_name: str) -> None:
    for words, code, message in REFUSED:
        ran = program("perf", *(topic_name if word == "T" else word for word in words))
        assert (ran.code, message in ran.err.splitlines()[0]) == (code, True), (words, ran.err)
        assert ran.out == "" or ran.out.startswith("start.time")
    assert values(program, topic_name) == []


def test_a_dry_run_sends_nothing(program: Program, topic_name: str) -> None:
    ran = program("perf", "producer", topic_name, "--num-records", "5", "--record-size", "5", "--dry-run")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith(f"dry run: would send 5 records to {topic_name} in ")
    assert values(program, topic_name) == []


def test_ctrl_c_tells_what_was_sent_so_far(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path
) -> None:
    load = ["--num-records", "1000000", "--record-size", "10", "--throughput", "1000", "--reporting-interval", "300"]
    process = subprocess.Popen(
        [PROGRAM, "perf", "producer", topic_name, *load, "-b", live_cluster.bootstrap_servers],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path),
    )  # fmt: skip
    assert process.stdout is not None
    assert WINDOW.fullmatch(process.stdout.readline().rstrip("\n"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    total = TOTAL.fullmatch(out.splitlines()[-1])
    assert (process.returncode, total is not None) == (130, True), err
    assert total is not None
    assert int(total[1]) <= len(values(program, topic_name)) < 1_000_000


def test_nobody_there(program: Program, topic_name: str) -> None:
    where = ("-b", "127.0.0.1:9", "--timeout", "2")
    load = ("--num-records", "1", "--record-size", "1")
    assert program("perf", "producer", topic_name, *load, *where).code == 3
    assert program("perf", "consumer", topic_name, "--messages", "1", *where).code == 3


def test_a_time_ends_a_test_as_a_number_does(program: Program, topic_name: str) -> None:
    sent = program(
        "perf", "producer", "--topic", topic_name, "--record-size", "10", "--duration", "300ms", "-o", "json"
    )
    assert sent.code == 0, sent.err
    count = sent.json["records_sent"]
    assert count > 0
    assert stored_count(program, topic_name) == count, "what was sent is there, and acknowledged"
    read = program("perf", "consumer", topic_name, "--duration", "1s", "-o", "json")
    assert (read.code, read.json["consumed_records"]) == (0, count)
    bad = program("perf", "producer", "--topic", topic_name, "--record-size", "10")
    assert (bad.code, "--num-records N, or --duration TIME" in bad.err) == (2, True)


def stored_count(program: Program, topic: str) -> int:
    return sum(row["offset"] for row in program("offsets", "--topic", topic, "-o", "json").json)


def test_records_encoded_anew_are_all_different(program: Program, topic_name: str) -> None:
    words = ["perf", "producer", "--topic", topic_name, "--record-size", "20", "--batch-size", "200"]
    assert program(*words, "--num-records", "1000", "--fresh").code == 0
    values = program("consume", topic_name, "--until-end").out.split()
    assert len(set(values)) == len(values) == 1000
    assert program(*words, "--num-records", "1000").code == 0
    again = program("consume", topic_name, "--until-end").out.split()
    assert len(set(again)) < 2000, "batches made in advance come again"
