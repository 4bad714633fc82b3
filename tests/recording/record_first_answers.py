"""Records ``fixtures/first-answers``, and the answers of ``fixtures/frames``, to the questions that the files hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recorded_kafka import TOPICS, RecordedCluster
from wire_client import ConnectionClosed, WireClient

FIXTURES = Path(__file__).parents[2] / "fixtures" / "first-answers"
CONTROLLER, UNTOLD, TOLD = "controller-with-metadata", "started-but-no-update-metadata", "after-update-metadata"


def record_first_answers(out: Path, work: Path) -> None:
    """Ask a controller, and a broker that no controller has told anything."""
    answers = _ask_in_three_states(work)
    for name in (CONTROLLER, UNTOLD):
        (note,) = [row for row in _rows(name) if "request" not in row]
        _write(out / f"{name}.jsonl", [note, *answers[name]])


def record_frames_of_answers(out: Path, work: Path) -> None:
    """Keep each different answer once, with the state in which it was given first."""
    answers: dict[tuple[str, str], dict[str, Any]] = {}
    for state, rows in _ask_in_three_states(work).items():
        for row in rows:
            if row["response"] is not None:
                row_recorded = {"state": state, "what": row["api"], "key": row["key"], "version": row["version"]}
                frames = {"request": row["request"], "response": row["response"]}
                answers.setdefault((row["request"], row["response"]), row_recorded | frames)
    _write(out / "answers-kafka-3.9.1.jsonl", list(answers.values()))


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text("utf-8").splitlines()]


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def _ask_in_three_states(work: Path) -> dict[str, list[dict[str, Any]]]:
    # An answer tells the second as a topic's setting: Kafka's own default.
    settings = {"zookeeper.session.timeout.ms": "60000", "log.segment.delete.delay.ms": "60000"}
    with RecordedCluster(work, "no-metadata-yet", work, settings) as cluster:
        cluster.start(0)
        cluster.tool(TOPICS, "--create", "--topic", "t1", "--replica-assignment", "0")
        controller = _ask(cluster, 0, CONTROLLER)
        # It asked for an absent topic, which Kafka then makes; broker 1 is asked about a cluster without it.
        cluster.wait(lambda: cluster.children("/brokers/topics") != ["t1"], "the topic that was asked for")
        for topic in set(cluster.children("/brokers/topics")) - {"t1"}:
            cluster.tool(TOPICS, "--delete", "--topic", topic)
        cluster.wait(lambda: cluster.children("/brokers/topics") == ["t1"], "the end of that topic")
        cluster.brokers[0].process.pause()
        cluster.start(1, is_told=False)
        untold = _ask(cluster, 1, UNTOLD)
        cluster.brokers[0].process.resume()
        cluster.wait_acquainted()
        return {TOLD: _ask(cluster, 1, UNTOLD), CONTROLLER: controller, UNTOLD: untold}


def _ask(cluster: RecordedCluster, broker_id: int, name: str) -> list[dict[str, Any]]:
    """Put each question on a connection of its own; a broker that closes it has no answer."""
    answered = []
    for row in _rows(name):
        if "request" in row:
            with WireClient(cluster.address(broker_id)) as client:
                client.socket.sendall(bytes.fromhex(row["request"]))
                try:
                    frame = client.read_frame()
                except ConnectionClosed:
                    answered.append({**row, "response": None})
                else:
                    answer = cluster.as_recorded((len(frame).to_bytes(4, "big") + frame).hex())
                    answered.append({**row, "response": answer})
    return answered
