"""Records ``fixtures/groups``: walks again through groups of a real broker, step by step as the file has them.

A walk is kept as far as its steps are still possible: where Kafka chose by the order of a hash map, or answered later,
a member that a step names may not be there.
"""

from __future__ import annotations

import json
import select
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import Any

from group_walks import Step, WalkWords
from recorded_kafka import TOPICS, RecordedCluster
from wire_client import WireClient

from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest

NAME = "kafka-3.9.1-walks.jsonl"
WALKS = Path(__file__).parents[2] / "fixtures" / "groups" / NAME
SILENT_S = 0.5
"""No more answers come to a step after this long."""
ANSWERED_S = 20.0


def record_groups(out: Path, work: Path) -> None:
    """Walk all walks again, a few at a time."""
    walks = [json.loads(line) for line in WALKS.read_text("utf-8").splitlines()]
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with RecordedCluster(work, "groups", work, settings) as cluster, ThreadPoolExecutor(8) as threads:
        cluster.start(0)
        cluster.tool(TOPICS, "--create", "--topic", "read", "--partitions", "2", "--replication-factor", "1")
        address, groups = cluster.address(0), [f"walk-{number}" for number in range(len(walks))]
        _wait_until_coordinated(address, groups)
        walked = list(threads.map(_walk, repeat(address), groups, walks))
    lines = [json.dumps(steps, separators=(",", ":")) + "\n" for steps in walked]
    (out / NAME).write_text("".join(lines), "utf-8")


def _wait_until_coordinated(address: str, groups: list[str]) -> None:
    """Have the offsets topic made, and wait until its partitions are loaded."""
    deadline = time.monotonic() + 60
    with WireClient(address) as client:
        client.ask(FindCoordinatorRequest(key=groups[0]), 0)
        while {r.error_code for r in client.ask(DeleteGroupsRequest(groups_names=groups), 1).results} != {
            ErrorCode.GROUP_ID_NOT_FOUND
        }:
            if time.monotonic() > deadline:
                raise TimeoutError("no coordinator")
            time.sleep(0.2)


def _walk(address: str, group: str, steps: list[Step]) -> list[Step]:
    words = WalkWords(group)
    walked: list[Step] = []
    waiting: dict[int, tuple[ApiKey, int]] = {}
    with ExitStack() as stack:
        clients = {actor: stack.enter_context(WireClient(address)) for actor in {step["actor"] for step in steps}}
        for step in steps:
            named = {step.get("member", ""), *step.get("assigned", ())}
            if step["actor"] in waiting or any(name.startswith("M") and name not in words.ids for name in named):
                break
            request = words.request(step)
            clients[step["actor"]].send(request, step["version"])
            waiting[step["actor"]] = (request.api_key, step["version"])
            came = _answers(clients, waiting, None if step["api"] in ("join", "sync") else step["actor"])
            for _, answer in came:
                words.note(answer)
            walked.append({**step, "answers": [[actor, words.plain(answer)] for actor, answer in came]})
    return walked


def _answers(
    clients: dict[int, WireClient], waiting: dict[int, tuple[ApiKey, int]], sure: int | None
) -> list[tuple[int, Any]]:
    """Return the answers that came; of a client who is ``sure`` to get one it is waited for, however long it takes."""
    answers: list[tuple[int, Any]] = []
    while waiting:
        sockets = {clients[actor].socket: actor for actor in waiting}
        ready, _, _ = select.select(list(sockets), [], [], ANSWERED_S if sure in waiting else SILENT_S)
        if not ready:
            break
        answers += [(actor, clients[actor].answer(*waiting.pop(actor))) for actor in map(sockets.__getitem__, ready)]
    return sorted(answers, key=lambda each: each[0])
