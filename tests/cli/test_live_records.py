"""Records through the real program and a running cluster: in from stdin, out in every form."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from klamm_program import PROGRAM, Ran, environment, in_process, klamm
from patience import wait_for

from cli.output.format import OutputFormat
from cli.views.records import record_printer
from engine.admin.records.fetching import ConsumedRecord
from engine.common.errors import ConfigError
from engine.kafka.protocol.records.attributes import TimestampType
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster

Program = Callable[..., Ran]


@pytest.fixture
def program(
    live_cluster: LocalCluster, topic_name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Program:
    """Runs commands against the cluster, which has a topic of two partitions."""
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", live_cluster.bootstrap_servers)

    def run(*words: str, stdin: str | bytes = b"") -> Ran:
        return in_process(*words, stdin=stdin, capture=capsys)

    assert run("topics", "create", topic_name, "--partitions", "2", "--replication-factor", "2").code == 0
    return run


def test_lines_in_and_lines_out(program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(1000)]
    where = ("--bootstrap-server", live_cluster.bootstrap_servers)
    sent = klamm("produce", topic_name, *where, folder=tmp_path, stdin="\n".join(lines))
    assert (sent.code, sent.err) == (0, "1000 records sent\n")
    assert sum(int(row[2]) for row in sent.rows) == 1000
    got = klamm("consume", topic_name, "--until-end", *where, folder=tmp_path)
    assert (got.code, got.err) == (0, "1000 records\n")
    assert sorted(got.out.splitlines()) == sorted(lines)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_stored_as_asked_for(
    program: Program, topic_name: str, codec: str, live_cluster: LocalCluster
) -> None:
    text = "the same words again and again " * 20
    sent = program("produce", topic_name, "--compression", codec, "--partition", "0", stdin=f"{text}\n{text}\n")
    assert sent.code == 0, sent.err
    leader = program("topics", "describe", topic_name, "-o", "json").json[0]["partitions"][0]["leader"]
    (log_dir,) = live_cluster.broker(leader).spec.log_dirs
    dumped = program("dump", f"{log_dir}/{topic_name}-0/00000000000000000000.log", "-o", "jsonl")
    codecs = {row["codec"] for row in map(json.loads, dumped.out.splitlines()) if row["kind"] == "batch"}
    assert codecs == {codec}
    assert program("consume", topic_name, "-e").out == f"{text}\n{text}\n"


def test_keys_headers_and_nulls(program: Program, topic_name: str) -> None:
    sent = program(
        "produce", topic_name, "--key-separator", ":", "--headers", "--null-marker", "NULL", "--header", "app=test",
        stdin="a:1,b:2\tk:v\n\tk:NULL\n",
    )  # fmt: skip
    assert sent.code == 0, sent.err
    assert len(sent.rows) == 1, "one key, one partition"
    got = program("consume", topic_name, "-e", "-o", "jsonl")
    first, second = [json.loads(line) for line in got.out.splitlines()]
    assert (first["key"], first["value"]) == ("k", "v")
    assert first["headers"] == [
        {"key": "app", "value": "test"},
        {"key": "a", "value": "1"},
        {"key": "b", "value": "2"},
    ]
    assert (second["value"], second["partition"], second["offset"]) == (None, first["partition"], first["offset"] + 1)
    assert set(first) == {
        "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers",
    }  # fmt: skip
    assert first["timestamp"].endswith("Z")
    pattern = "%t/%p/%o %k=%s %K %S %h%%\\n"
    printed = program("consume", topic_name, "-e", "--format", pattern).out.splitlines()
    assert printed[0] == f"{topic_name}/{first['partition']}/0 k=v 1 1 app=test,a=1,b=2%"
    assert printed[1].endswith("k= 1 -1 app=test%")


def test_a_format_has_bytes_and_names_a_field_that_no_record_has() -> None:
    consumed = ConsumedRecord("t", 0, Record(0, 0, None, b"v", ()), TimestampType.CREATE_TIME)
    assert record_printer(OutputFormat.PLAIN, "%s\\xff\\x0a%%\\n", {})(consumed) == b"v\xff\n%\n"
    for pattern, told in (("%s%z", "no field %z"), ("%s %", "no field %;")):
        with pytest.raises(ConfigError, match=told):
            record_printer(OutputFormat.PLAIN, pattern, {})


def test_bytes_that_are_no_text_survive(program: Program, topic_name: str) -> None:
    value = bytes(byte for byte in range(256) if byte not in b"\r\n")
    assert program("produce", topic_name, "--partition", "1", stdin=value + b"\n").code == 0
    line = program("consume", topic_name, "-e", "-o", "jsonl").out
    assert json.loads(line)["value_encoding"] == "base64"
    assert program("produce", topic_name, "--input", "jsonl", stdin=line).code == 0
    first, second = program("consume", topic_name, "-e", "-o", "jsonl").out.splitlines()
    assert json.loads(first)["value"] == json.loads(second)["value"]
    assert json.loads(second)["partition"] == 1


def test_where_to_start_and_when_to_stop(program: Program, topic_name: str) -> None:
    program("produce", topic_name, "--partition", "0", stdin="".join(f"{number}\n" for number in range(10)))
    partition = ("--partition", "0")
    assert program("consume", topic_name, *partition, "--offset", "7", "-e").out == "7\n8\n9\n"
    assert program("consume", topic_name, *partition, "--offset", "-2", "-e").out == "8\n9\n"
    assert program("consume", topic_name, "--from-beginning", "--max-messages", "3").out == "0\n1\n2\n"
    endless = program("consume", topic_name, "-e", "--max-messages", "-1", "--timeout-ms", "-1")
    assert endless.out == program("consume", topic_name, "-e").out != "", "Kafka's word for no limit"
    assert program("consume", topic_name, "-e", "--max-messages", "-2").code == 2
    assert program("consume", topic_name, "--from-beginning", "-n", "1", "-o", "csv").out.startswith("topic,partition")
    waited = program("consume", topic_name, "--timeout-ms", "300")
    assert (waited.code, waited.out) == (0, "")
    for span, output in (
        ("2:5", "2\n3\n4\n"),
        (":2", "0\n1\n"),
        ("7:-1", "7\n8\n"),
        ("8:99", "8\n9\n"),
        ("@1h:@2000-01-01", ""),
    ):
        assert program("consume", topic_name, *partition, "--offset", span).out == output, span
    everything = program("consume", topic_name, *partition, "--offset", "@1h:@0s")
    assert everything.out == program("consume", topic_name, *partition, "--from-time", "1h", "--to-time", "0s").out
    assert everything.out.count("\n") == 10
    gone = program("consume", topic_name, *partition, "--offset", "99", "-e")
    assert gone.code in (0, 4), "nothing is there between the end and an offset beyond it"


def test_acks_and_idempotence_by_choice(program: Program, topic_name: str) -> None:
    for options in (["--acks", "0"], ["--acks", "1"], ["--no-idempotence"]):
        assert program("produce", topic_name, *options, "--partition", "0", stdin="x\n").code == 0
    # All are in one partition. Every replica acknowledges the last, so all before it are below the high watermark.
    assert program("consume", topic_name, "-e").out == "x\nx\nx\n"
    assert program("produce", topic_name, "--acks", "2", stdin="x").code == 2
    assert program("produce", topic_name, "--compression", "rar", stdin="x").code == 2


def test_wrong_input_is_named_by_its_line(program: Program, topic_name: str) -> None:
    ran = program("produce", topic_name, "--key-separator", ":", stdin="a:b\nno separator\n")
    assert ran.code == 2
    assert ran.err.splitlines()[:2] == [
        "1 record sent before the line that cannot be sent",
        "error: no key separator ':': line 2 of stdin",
    ]
    ran = program("produce", topic_name, "--key-separator", "", stdin="a:b\n")
    assert ran.code == 2
    assert ran.err.startswith("error: --key-separator is empty: give the text between key and value: klamm produce\n")
    assert program("produce", "absent", stdin="x").code == 2
    assert program("consume", "absent", "-e").code == 2
    dry = program("produce", topic_name, "--dry-run", stdin="x\n")
    assert (dry.code, "dry run" in dry.err) == (0, True)
    assert program("consume", topic_name, "-e").out == "b\n"


def test_the_console_producer_takes_properties_of_lines_and_of_its_client(
    program: Program, topic_name: str, tmp_path: Path
) -> None:
    reader, client = tmp_path / "reader.properties", tmp_path / "client.properties"
    reader.write_text("parse.key=true\nkey.separator=;\nparse.headers=true\n")
    client.write_text("acks=all\ncompression.type=gzip\n")
    sent = program(
        "kafka-console-producer", "--topic", topic_name, "--producer.config", str(client), "--reader-config",
        str(reader), "--property", "headers.delimiter=|", "--property", "key.separator=:", "--property",
        "null.marker=NULL", "--property", "ignore.error=true", "--producer-property", "compression.type=lz4",
        "--line-reader", "org.apache.kafka.tools.LineMessageReader",
        stdin="a:1,b:NULL|k:v\nNULL|k:NULL\nbare\n",
    )  # fmt: skip
    assert sent == Ran(0, "", ""), "Kafka's tool is silent"
    rows = [json.loads(line) for line in program("consume", topic_name, "-e", "-o", "jsonl").out.splitlines()]
    headers = [{"key": "a", "value": "1"}, {"key": "b", "value": None}]
    told = sorted((row["key"] or "", row["value"] or "", row["headers"]) for row in rows)
    assert told == [("", "bare", []), ("k", "", []), ("k", "v", headers)]


def test_as_with_kafkas_tool_offsets_that_nobody_committed_are_deleted(program: Program, topic_name: str) -> None:
    group, other = f"group-of-{topic_name}", f"{topic_name}-unread"
    assert program("topics", "create", other, "--partitions", "2", "--replication-factor", "1").code == 0
    assert program("produce", topic_name, "--partition", "0", stdin="1\n").code == 0
    read = program("consume", topic_name, "--group", group, "--from-beginning", "--max-messages", "1")
    assert read.code == 0, read.err
    done = program("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", other)
    assert (done.code, done.out.splitlines()) == (
        0,
        [
            f"Request succeed for deleting offsets with topic {other} group {group}",
            "",
            f"{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}",
            *(f"{other:<30} {partition:<15} {'Successful':<15}" for partition in (0, 1)),
        ],
    ), done.err
    for named, shown in (("no-such", "Not Provided"), ("no-such:0", "0"), (f"{other}:7", "7")):
        failed = program("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", named)
        *_, head, last = failed.out.splitlines()
        assert (failed.code, head.split()) == (2, ["TOPIC", "PARTITION", "STATUS"]), failed.err
        why = "Error: :org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this"
        assert last == f"{named.partition(':')[0]:<30} {shown:<15} {why} topic-partition."
    own = program("groups", "delete-offsets", group, "--topic", other, "--yes")
    assert (own.code, "has committed nothing in topic" in own.err) == (2, True), own.err


def test_the_console_consumer_takes_settings_of_its_client(program: Program, topic_name: str, tmp_path: Path) -> None:
    assert program("produce", topic_name, "--partition", "0", stdin="1\n2\n3\n").code == 0
    group, file = f"group-of-{topic_name}", tmp_path / "consumer.properties"
    file.write_text(
        f"group.id={group}\nauto.offset.reset=earliest\nisolation.level=read_committed\nfetch.min.bytes=1\n"
    )
    line = ("kafka-console-consumer", "--topic", topic_name, "--consumer.config", str(file), "--max-messages")

    def committed() -> int | None:
        rows = program("groups", "describe", group, "-o", "json").json[0]["partitions"]
        return next((row["current_offset"] for row in rows if row["partition"] == 0), None)

    for words in (("2", "--consumer-property", "enable.auto.commit=false"), ("2",)):
        assert program(*line, *words).out == "1\n2\n", "what nobody has committed is read again"
    assert committed() == 2
    assert program(*line, "1", "--group", group).out == "3\n"
    other = program(*line, "1", "--group", "other")
    assert (other.code, f"--group other and group.id={group} differ" in other.err) == (2, True)
    newest = program("kafka-console-consumer", "--topic", topic_name, "--timeout-ms", "300")
    assert (newest.code, newest.out, newest.err) == (0, "", "Processed a total of 0 messages\n")


def test_a_value_that_is_no_number_ends_the_console_consumer_or_is_skipped(program: Program, topic_name: str) -> None:
    values = [(7).to_bytes(8, "big"), b"seven", (8).to_bytes(8, "big")]
    lines = "".join(
        json.dumps({"value": base64.b64encode(value).decode(), "value_encoding": "base64"}) + "\n" for value in values
    )
    assert program("produce", topic_name, "--partition", "0", "--input", "jsonl", stdin=lines).code == 0
    line = ("kafka-console-consumer", "--topic", topic_name, "--from-beginning", "--max-messages", "3")
    longs = ("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer")
    ended = program(*line, *longs)
    told = f"error: value is no Long (5 bytes): {topic_name}-0 at offset 1; --skip-message-on-error leaves"
    assert (ended.code, ended.out, told in ended.err) == (2, "7\n", True), ended.err
    assert ended.err.startswith("Processed a total of 2 messages\n"), "as in Kafka's tool, the bad one counts"
    skipped = program(*line, *longs, "--skip-message-on-error")
    assert (skipped.code, skipped.out, skipped.err) == (0, "7\n8\n", "Processed a total of 3 messages\n")
    assert program(*line, "--formatter", "kafka.tools.NoOpMessageFormatter").out == ""
    group = f"group-of-{topic_name}"
    in_group = program(*line, *longs, "--group", group)
    assert (in_group.code, in_group.out) == (2, "7\n"), in_group.err
    rows = program("groups", "describe", group, "-o", "json").json[0]["partitions"]
    committed = {row["partition"]: row["current_offset"] for row in rows}
    assert committed[0] == 2, "as Kafka's tool commits: behind the bad one"


def test_a_reader_that_goes_away_is_no_error(program: Program, topic_name: str, live_cluster: LocalCluster) -> None:
    program("produce", topic_name, stdin="x\n" * 10_000)
    command = f"{PROGRAM} consume {topic_name} --from-beginning -b {live_cluster.bootstrap_servers} | head -2"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False, env=environment(Path())
    )
    assert (ran.returncode, ran.stdout) == (0, b"x\nx\n")
    assert b"error" not in ran.stderr


def test_a_reader_that_goes_away_is_noticed_where_no_more_records_come(
    program: Program, topic_name: str, live_cluster: LocalCluster
) -> None:
    program("produce", topic_name, stdin="x\n")
    command = f"{PROGRAM} consume {topic_name} --from-beginning -b {live_cluster.bootstrap_servers} | head -1"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False, env=environment(Path())
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"x\n", b"1 record\n")


def test_ctrl_c_ends_a_consumer_with_130(topic_name: str, program: Program, live_cluster: LocalCluster) -> None:
    program("produce", topic_name, stdin="first\n")
    process = subprocess.Popen(
        [PROGRAM, "consume", topic_name, "--from-beginning", "-b", live_cluster.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(Path()),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.decode().splitlines() == ["1 record", "error: interrupted"]


def test_what_is_typed_goes_at_once(topic_name: str, program: Program, live_cluster: LocalCluster) -> None:
    """A line in an open pipe is sent before the next one comes."""
    producer = subprocess.Popen(
        [PROGRAM, "produce", topic_name, "-b", live_cluster.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(Path()),
    )
    assert producer.stdin is not None
    producer.stdin.write(b"now\n")
    producer.stdin.flush()
    wait_for(lambda: program("consume", topic_name, "-e").out == "now\n", "the record is there")
    producer.stdin.close()
    assert producer.wait(60) == 0


def test_a_topic_that_is_deleted_meanwhile_is_no_wrong_use(
    topic_name: str, program: Program, live_cluster: LocalCluster
) -> None:
    """The name existed when it was given. What was stored before is told."""
    where = ("-b", live_cluster.bootstrap_servers, "--timeout", "2")
    own, pipe, nowhere = environment(Path()), subprocess.PIPE, subprocess.DEVNULL
    producer, reader = (
        subprocess.Popen([PROGRAM, *words, *where], stdin=pipe, stdout=out, stderr=pipe, env=own, text=True)
        for words, out in ((("produce", topic_name), nowhere), (("consume", topic_name, "--from-beginning"), pipe))
    )
    assert producer.stdin is not None and reader.stdout is not None
    producer.stdin.write("now\n")
    producer.stdin.flush()
    assert reader.stdout.readline() == "now\n"
    assert program("topics", "delete", topic_name, "--yes").code == 0
    _, said = producer.communicate("then\n", timeout=60)
    assert (producer.returncode, "(UNKNOWN_TOPIC_OR_PARTITION): topic " in said) == (4, True), said
    assert "1 of 2 records known to be stored" in said
    _, said = reader.communicate(timeout=60)
    assert (reader.returncode, "it was deleted while it was read" in said) == (4, True), said
