"""Walks of ``fixtures/transactions``: random requests of several producers, and their answers in the file's words.

Transactional ids are t0, t1 and t2. A producer is named by the number of its transactional id's InitProducerId; if that
was refused, the producer before sends the request. Producer ids are P0, P1 … in the order in which Kafka gave them.
"""

from __future__ import annotations

import json
import random
from typing import Any

from engine.kafka.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from engine.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from engine.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from engine.kafka.protocol.apis.end_txn import EndTxnRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from engine.kafka.protocol.apis.list_transactions import ListTransactionsRequest
from engine.kafka.protocol.declaration import Request, Struct

Step = dict[str, Any]

TOPIC, PARTITIONS = "walked", 3
NAMES = ("t0", "t1", "t2")
NOBODY = (987_654, 0)
STATES = ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "CompleteAbort", "Dead", "NoState")

_UNTOLD = frozenset({"throttle_time_ms"})
_EMPTY = (None, "", [], 0)


def random_walk(seed: int, length: int) -> list[Step]:
    """Return steps without answers."""
    chance = random.Random(seed)
    turns = dict.fromkeys(NAMES, -1)
    steps: list[Step] = []
    apis = {"init": 3, "go on": 3, "add": 7, "offsets": 2, "end": 7, "ask": 2, "describe": 1, "list": 1}
    for _ in range(length):
        (api,) = chance.choices(list(apis), list(apis.values()))
        name = chance.choice(NAMES)
        turn = max(turns[name] - chance.choice((0, 0, 0, 0, 0, 0, 1, 2)), 0)
        step: Step = {"api": api, "id": name, "turn": turn}
        if chance.random() < 0.08:
            step["wrong"] = chance.choice(("epoch+1", "epoch-1", "producer"))
        match api:
            case "init" | "go on":
                turns[name] += 1
                step |= {"new": turns[name], "timeout": chance.choice((60_000,) * 18 + (900_000, 900_001, 0, -5))}
                step["version"] = chance.randrange(6) if api == "init" else chance.choice((3, 4, 5))
            case "add" | "ask":
                step["version"] = chance.randrange(4) if api == "add" else chance.choice((4, 5))
                step["partitions"] = [chance.randrange(PARTITIONS) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
                if chance.random() < 0.06:
                    step["partitions"].append(PARTITIONS)
                if api == "ask":
                    step["only"] = chance.random() < 0.7
            case "offsets":
                step |= {"version": chance.randrange(5), "group": f"g{chance.randrange(2)}"}
            case "end":
                step |= {"version": chance.randrange(5), "commit": chance.random() < 0.6}
            case "describe":
                step["version"] = 0
            case "list":
                step |= {"version": chance.randrange(2), "states": chance.sample(STATES, chance.randrange(3))}
                if step["version"]:
                    step["duration"] = chance.choice((-1, 3_600_000))
        steps.append(step)
    return steps


class WalkWords:
    """Translates the steps of one walk, and remembers what the producers were told."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._told: dict[tuple[str, int], tuple[int, int]] = {}
        self._names: dict[int, str] = {}

    @property
    def ids(self) -> list[str]:
        """The walk's transactional ids."""
        return [self._prefix + name for name in NAMES]

    def note(self, step: Step, answer: Any) -> None:
        """Remember what a producer was told."""
        if isinstance(answer, InitProducerIdResponse) and not answer.error_code:
            self._names.setdefault(answer.producer_id, f"P{len(self._names)}")
            self._told[step["id"], step["new"]] = (answer.producer_id, answer.producer_epoch)

    def _who(self, step: Step) -> dict[str, Any]:
        earlier = [turn for name, turn in self._told if name == step["id"] and turn <= step["turn"]]
        producer_id, epoch = self._told[step["id"], max(earlier)] if earlier else NOBODY
        match step.get("wrong"):
            case "producer":
                producer_id += 1_000_000
            case "epoch+1":
                epoch += 1
            case "epoch-1":
                epoch = max(epoch - 1, 0)
        return {
            "transactional_id": self._prefix + step["id"],
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }

    def request(self, step: Step) -> Request:
        """Return the request of a step."""
        who = self._who(step)
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=step.get("partitions", []))]
        match step["api"]:
            case "init":
                none = {"producer_id": -1, "producer_epoch": -1}
                return InitProducerIdRequest(**who | none, transaction_timeout_ms=step["timeout"])
            case "go on":
                return InitProducerIdRequest(**who, transaction_timeout_ms=step["timeout"])
            case "add":
                old = {f"v3_and_below_{name}": value for name, value in who.items()}
                return AddPartitionsToTxnRequest(**old, v3_and_below_topics=topics)
            case "ask":
                asked = AddPartitionsToTxnTransaction(**who, verify_only=step["only"], topics=topics)
                return AddPartitionsToTxnRequest(transactions=[asked])
            case "offsets":
                return AddOffsetsToTxnRequest(**who, group_id=step["group"])
            case "end":
                return EndTxnRequest(**who, committed=step["commit"])
            case "describe":
                return DescribeTransactionsRequest(transactional_ids=[*self.ids, "nobody", ""])
            case "list":
                return ListTransactionsRequest(
                    producer_id_filters=[NOBODY[0], *self._names],
                    state_filters=step["states"],
                    duration_filter=step.get("duration", -1),
                )
        raise AssertionError(step)

    def plain(self, value: Any, field_name: str = "") -> Any:
        """Return an answer as the walks have it: without what is empty, lists in no order of their own."""
        if isinstance(value, Struct):
            fields = ((field.name, self.plain(getattr(value, field.name), field.name)) for field in value.wire_fields)
            return {name: told for name, told in fields if name not in _UNTOLD and told not in _EMPTY}
        if isinstance(value, list):
            return sorted(map(self.plain, value), key=order_of)
        if isinstance(value, str) and field_name == "transactional_id":
            return value.removeprefix(self._prefix)
        if field_name == "producer_id":
            return self._names.get(value, value)
        if field_name == "transaction_start_time_ms":
            return value if value <= 0 else "then"
        return value if isinstance(value, bool) or not isinstance(value, int) else int(value)


def order_of(value: Any) -> str:
    """A key by which plain values sort."""
    return json.dumps(value, sort_keys=True)
