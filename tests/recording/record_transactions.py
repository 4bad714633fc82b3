"""Records ``fixtures/transactions``: random walks of producers through transactions of a real broker."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from recorded_kafka import TOPICS, RecordedCluster
from transaction_walks import PARTITIONS, TOPIC, Step, WalkWords, random_walk
from wire_client import WireClient

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest

NAME = "kafka-3.9.1-walks.jsonl"
WALKS = int(os.environ.get("KLAMM_WALKS", "60"))
STEPS = 40
DEADLINE_S = 60.0


def record_transactions(out: Path, work: Path) -> None:
    """Walk all walks, a few at a time."""
    with RecordedCluster(work, "transactions", work) as cluster, ThreadPoolExecutor(4) as threads:
        cluster.start(0)
        replicas = ("--replication-factor", "1")
        cluster.tool(TOPICS, "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS), *replicas)
        cluster.tool(TOPICS, "--create", "--topic", "__consumer_offsets", "--partitions", "5", *replicas)
        address = cluster.address(0)
        _wait_until_coordinated(address)
        walked = list(threads.map(_walk, repeat(address), range(WALKS)))
    lines = [json.dumps(steps, separators=(",", ":")) + "\n" for steps in walked]
    (out / NAME).write_text("".join(lines), "utf-8")


def _wait_until_coordinated(address: str) -> None:
    """Have the transactions' topic made, and wait until its partitions are loaded."""
    deadline = time.monotonic() + DEADLINE_S
    with WireClient(address) as client:
        for number in range(50):
            asked = InitProducerIdRequest(
                transactional_id=f"first-{number}", transaction_timeout_ms=1_000, producer_id=-1, producer_epoch=-1
            )
            client.ask(FindCoordinatorRequest(key=asked.transactional_id or "", key_type=1), 2)
            while client.ask(asked, 1).error_code != ErrorCode.NONE:
                if time.monotonic() > deadline:
                    raise TimeoutError("no coordinator")
                time.sleep(0.2)


def _walk(address: str, seed: int) -> list[Step]:
    words = WalkWords(f"walk-{seed}-")
    walked: list[Step] = []
    with WireClient(address) as client:
        for step in random_walk(seed, STEPS):
            answer = client.ask(words.request(step), step["version"])
            words.note(step, answer)
            walked.append({**step, "answer": words.plain(answer)})
            _settle(client, words.ids)
    return walked


def _settle(client: WireClient, transactional_ids: list[str]) -> None:
    """Wait until every partition has its marker: Kafka answers before."""
    deadline = time.monotonic() + DEADLINE_S
    asked = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    while any(one.transaction_state.startswith("Prepare") for one in client.ask(asked, 0).transaction_states):
        if time.monotonic() > deadline:
            raise TimeoutError("markers are missing")
        time.sleep(0.002)
