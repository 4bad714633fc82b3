"""Records ``fixtures/config``: Kafka's definitions of settings, and its answers to the questions in the files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apache_kafka import START_TIMEOUT_S, fetch_jars
from kafka_tools import run_java

from engine.local.java import find_java
from engine.local.probe import known_broker_ids
from engine.local.processes import start_process
from engine.local.zookeeper import EmbeddedZooKeeper

FIXTURES = Path(__file__).parents[2] / "fixtures" / "config"
ANSWERS = ("value", "error", "listeners", "advertised", "inter_broker", "broker_id", "log_dirs", "log_config")
_LOG4J = """\
log4j.rootLogger=INFO, server
log4j.appender.server=org.apache.log4j.FileAppender
log4j.appender.server.File={folder}/server.log
log4j.appender.server.layout=org.apache.log4j.SimpleLayout
log4j.logger.kafka=INFO
log4j.logger.kafka.controller=INFO
"""
"""The loggers that the questions are about."""
VERSIONS = "an inter-broker protocol version"
"""Stands for the list of all of them among the valid values."""


def record_config(out: Path, work: Path) -> None:
    """Record all files but `server.properties`, which is ours."""
    for kind in ("broker-configs", "topic-configs"):
        facts = run_java("ConfigFacts", kind)
        for fact in facts:
            if (fact["valid"] or "").startswith("[0.8.0, "):
                fact["valid"] = VERSIONS
        _write_rows(out / f"kafka-3.9.1-{kind}.json", facts)
    _write_versions(out / "kafka-3.9.1-metadata-versions.json")
    for name, kind in (("values", "values"), ("server-properties", "server-properties")):
        path = f"kafka-3.9.1-{name}.json"
        asked = [{k: v for k, v in row.items() if k not in ANSWERS} for row in _questions(path)]
        _write_rows(out / path, run_java("ConfigFacts", kind, rows=asked))
    texts = [{"text": row["text"]} for row in _questions("java-properties.json")]
    _write_rows(out / "java-properties.json", run_java("ConfigFacts", "properties", rows=texts))
    path = "kafka-3.9.1-doubles.json"
    asked = [{"double": double} for double in _questions(path)]
    doubles = {row["double"]: row["text"] for row in run_java("ConfigFacts", "doubles", rows=asked)}
    (out / path).write_text(json.dumps(doubles, indent=1) + "\n", "utf-8")
    _record_requests(out, work)


def _questions(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text("utf-8"))


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("[\n" + ",\n".join(map(_line, rows)) + "\n]\n", "utf-8")


def _write_versions(path: Path) -> None:
    asked = [{"text": text} for text in _questions(path.name)["parsed"]]
    parsed = {
        row["text"]: row.get("version") or f"! {row['error']}" for row in run_java("ConfigFacts", "parsed", rows=asked)
    }
    versions = ",\n".join(map(_line, run_java("ConfigFacts", "metadata-versions")))
    path.write_text(f'{{"versions":[\n{versions}\n],\n"parsed":{json.dumps(parsed, indent=1)}}}\n', "utf-8")


def _record_requests(out: Path, work: Path) -> None:
    """Ask everything in the order of the file: each answer depends on the changes before."""
    name = "kafka-3.9.1-config-requests"
    asked = [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text("utf-8").splitlines()]
    for exchange in asked:
        del exchange["response"]
    properties = (FIXTURES / f"{name}.properties").read_text("utf-8")
    settings = dict(line.split("=", 1) for line in properties.splitlines())
    with _bare_broker(work, settings) as (host, port):
        answered = run_java("ConfigRequests", host, port, rows=asked)
    lines = "".join(_line(exchange) + "\n" for exchange in answered)
    (out / f"{name}.jsonl").write_text(lines.replace(str(work / "data"), settings["log.dirs"]), "utf-8")
    if out != FIXTURES:
        (out / f"{name}.properties").write_text(properties, "utf-8")


@contextmanager
def _bare_broker(work: Path, settings: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Run a broker with nothing but the file's settings, at the file's addresses: its answers name them."""
    text = "".join(f"{key}={value}\n" for key, value in {**settings, "log.dirs": str(work / "data")}.items())
    (work / "server.properties").write_text(text, "utf-8")
    (work / "log4j.properties").write_text(_LOG4J.format(folder=work), "utf-8")
    zookeeper_host, _, zookeeper_port = settings["zookeeper.connect"].rpartition(":")
    host, _, port = settings["listeners"].removeprefix("PLAINTEXT://").rpartition(":")
    java = [find_java().program, "-Xmx512m", f"-Dlog4j.configuration=file:{work / 'log4j.properties'}"]
    words = [*java, "-cp", f"{fetch_jars()}/*", "kafka.Kafka", work / "server.properties"]
    with EmbeddedZooKeeper(work / "zookeeper", host=zookeeper_host, port=int(zookeeper_port), fsync=False):
        broker = start_process(words, output=work / "broker.out")
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not known_broker_ids(host, int(port)):
                if not broker.is_alive or time.monotonic() > deadline:
                    raise RuntimeError(f"Kafka did not start: {(work / 'broker.out').read_text()}")
                time.sleep(0.1)
            yield host, port
        finally:
            broker.stop(30.0)
