"""Records ``fixtures/transactions``: random walks of producers through transactions of a real broker."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

from recorded_kafka import TOPICS, RecordedCluster
from transaction_walks import PARTITIONS, TOPIC, Step, WalkWords, random_walk, settle, wait_until_coordinated
from wire_client import WireClient, create_topic

NAME, NAME_WITH_RECORDS = "kafka-3.9.1-walks.jsonl", "kafka-3.9.1-walks-with-records.jsonl"
WALKS = int(os.environ.get("KLAMM_WALKS", "60"))
STEPS = 40
OFFSETS_S = 0.02
"""Kafka takes in the offsets of a transaction a moment after the marker."""
DEADLINE_S = 60.0


def record_transactions(out: Path, work: Path) -> None:
    """Walk all walks, a few at a time."""
    with RecordedCluster(work, "transactions", work) as cluster, ThreadPoolExecutor(4) as threads:
        cluster.start(0)
        replicas = ("--replication-factor", "1")
        cluster.tool(TOPICS, "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS), *replicas)
        cluster.tool(TOPICS, "--create", "--topic", "__consumer_offsets", "--partitions", "5", *replicas)
        address = cluster.address(0)
        wait_until_coordinated(address)
        _write(out / NAME, threads.map(_walk, repeat(address), range(WALKS)))
        # Kafka asks its coordinator about several requests at once, and answers all in the words of the first one's
        # version: only one walk with records at a time gets the answers that it would get alone.
        _write(out / NAME_WITH_RECORDS, map(_walk_with_records, repeat(address), range(WALKS)))


def _write(path: Path, walked: Iterable[object]) -> None:
    path.write_text("".join(json.dumps(walk, separators=(",", ":")) + "\n" for walk in walked), "utf-8")


def _walk(address: str, seed: int) -> list[Step]:
    return _answered(address, WalkWords(f"walk-{seed}-"), random_walk(seed, STEPS))


def _walk_with_records(address: str, seed: int) -> dict[str, Any]:
    words = WalkWords.with_records(seed)
    create_topic(address, words.topic, partitions=PARTITIONS)
    return {"number": seed, "steps": _answered(address, words, random_walk(seed, STEPS, with_records=True))}


def _answered(address: str, words: WalkWords, steps: list[Step]) -> list[Step]:
    walked: list[Step] = []
    with WireClient(address) as client:
        for step in steps:
            if step["api"] == "committed":
                time.sleep(OFFSETS_S)
            answer = client.ask(words.request(step), step["version"])
            words.note(step, answer)
            walked.append({**step, "answer": words.plain(answer)})
            try:
                settle(client, words.ids)
            except TimeoutError:
                # A later epoch keeps the coordinator's markers out for good, as in Kafka: the walk ends here.
                break
    return walked
