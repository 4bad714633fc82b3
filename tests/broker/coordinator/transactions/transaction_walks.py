"""Walks of ``fixtures/transactions``: random requests of several producers, and their answers in the file's words.

Transactional ids are t0, t1 and t2. A producer is named by the number of its transactional id's InitProducerId; if that
was refused, the producer before sends the request. Producer ids are P0, P1 … in the order in which Kafka gave them.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any

from wire_client import WireClient

from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.kafka.formats.consumer_offsets import partition_for
from engine.kafka.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from engine.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from engine.kafka.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from engine.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from engine.kafka.protocol.apis.end_txn import EndTxnRequest
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.list_transactions import ListTransactionsRequest
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from engine.kafka.protocol.declaration import Request, Struct
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

Step = dict[str, Any]

TOPIC, PARTITIONS = "walked", 3
NAMES = ("t0", "t1", "t2")
NOBODY = (987_654, 0)
_WRONG = 1_000_000
"""What makes a wrong producer id of a right one."""
STATES = ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "CompleteAbort", "Dead", "NoState")

OFFSETS, OFFSETS_PARTITIONS = GROUP_METADATA_TOPIC, 5
DEADLINE_S = 20.0
BEGIN_MS = int(time.time() * 1000)
"""The records' time, for the present: markers get the present time, and retention counts from the latest."""

_UNTOLD = frozenset(
    # What depends on the time, and Kafka's words: their bytes are compared elsewhere.
    {"throttle_time_ms", "topic_id", "last_timestamp", "records", "error_message", "record_errors", "diverging_epoch"}
)
_EMPTY = (None, "", [], 0)


_APIS = {"init": 3, "go on": 3, "add": 7, "offsets": 2, "end": 7, "ask": 2, "describe": 1, "list": 1}
_APIS_WITH_RECORDS = {
    "init": 1,
    "go on": 1,
    "add": 10,
    "offsets": 4,
    "end": 6,
    "ask": 1,
    "describe": 1,
    "produce": 12,
    "commit": 5,
    "mark": 3,
    "ends": 2,
    "fetch": 2,
    "committed": 3,
    "producers": 2,
}


def random_walk(seed: int, length: int, *, with_records: bool = False) -> list[Step]:
    """Return steps without answers."""
    chance = random.Random(seed)
    turns = dict.fromkeys(NAMES, -1)
    sequences: dict[tuple[str, int, int], int] = {}
    steps: list[Step] = []
    added: dict[str, Step] = {}
    apis = _APIS_WITH_RECORDS if with_records else _APIS
    if with_records:
        steps = [{"api": "init", "id": name, "turn": 0, "new": 0, "timeout": 60_000, "version": 4} for name in NAMES]
        turns = dict.fromkeys(NAMES, 0)
    for number in range(len(steps), length):
        (api,) = chance.choices(list(apis), list(apis.values()))
        needs = {"produce": "add", "commit": "offsets"}.get(api, "")
        may = [name for name in NAMES if needs + name in added] if chance.random() < 0.85 else []
        name = chance.choice(may or NAMES)
        turn = max(turns[name] - chance.choice((*(0,) * (18 if with_records else 6), 1, 2)), 0)
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
            case _:
                step |= _with_records(chance, api, number)
        if api in ("add", "offsets"):
            added[api + name] = step
        elif api == "end":
            added = {key: step for key, step in added.items() if not key.endswith(name)}
        if api == "produce":
            if chance.random() < 0.8 and "add" + name in added:
                step["partition"] = chance.choice(added["add" + name]["partitions"]) % PARTITIONS
            of = (name, turn, step["partition"])
            step["sequence"] = max(sequences.get(of, 0) + chance.choice((0,) * 10 + (1, -1)), 0)
            sequences[of] = step["sequence"] + 1
            if not step["transactional"]:
                # Its later epoch would be taken, and keep out the coordinator's markers for good.
                step.pop("wrong", None)
        if api == "commit" and chance.random() < 0.8 and "offsets" + name in added:
            step["group"] = added["offsets" + name]["group"]
        steps.append(step)
    return steps


def _with_records(chance: random.Random, api: str, number: int) -> Step:
    """Return what a step about records says."""
    partition, group = chance.randrange(PARTITIONS), f"g{chance.randrange(2)}"
    match api:
        case "produce":
            version = chance.choice((3, 5, 8, 9, 10, 11))
            return {"version": version, "partition": partition, "transactional": chance.random() < 0.95}
        case "commit":
            return {"version": chance.randrange(5), "group": group, "partition": partition, "offset": number}
        case "mark":
            # A later epoch of producer or coordinator would keep out the coordinator's own markers for good.
            step = {"version": chance.randrange(2), "commit": chance.random() < 0.5, "coordinator": 0}
            step |= {"partitions": chance.sample(range(PARTITIONS + 1), chance.choice((1, 1, 2, 3)))}
            return step | ({"group": group} if chance.random() < 0.3 else {})
        case "ends":
            return {"version": chance.randrange(2, 9)}
        case "fetch":
            return {"version": chance.choice((4, 11, 12)), "partition": partition}
        case "committed":
            return {"version": chance.choice((8, 9)), "group": group, "stable": chance.random() < 0.7}
        case "producers":
            return {"version": 0}
    raise AssertionError(api)


class WalkWords:
    """Translates the steps of one walk, and remembers what the producers were told."""

    def __init__(self, prefix: str = "", topic: str = TOPIC) -> None:
        """In walks with records, each has a topic and groups of its own, which begin with the prefix."""
        self._prefix = prefix
        self.topic = topic
        self._told: dict[tuple[str, int], tuple[int, int]] = {}
        self._names: dict[int, str] = {}

    @classmethod
    def with_records(cls, seed: int) -> WalkWords:
        """Return the words of a walk with records: its topic and groups are its own."""
        prefix = f"records-{seed}-"
        return cls(prefix, prefix + TOPIC)

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
                producer_id += _WRONG
            case "epoch+1":
                epoch += step["api"] != "mark"
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
        topics = [AddPartitionsToTxnTopic(name=self.topic, partitions=step.get("partitions", []))]
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
                return AddOffsetsToTxnRequest(**who, group_id=self.group(step))
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
        return self._about_records(step, who)

    def group(self, step: Step) -> str:
        """Return a group's name."""
        return (self._prefix if self.topic != TOPIC else "") + str(step["group"])

    def _about_records(self, step: Step, who: dict[str, Any]) -> Request:
        of, everywhere = step.get("partition", 0), list(range(PARTITIONS))
        match step["api"]:
            case "produce":
                batch = encode_batch(
                    [Record(timestamp_ms=BEGIN_MS, value=b"value")],
                    producer_id=who["producer_id"],
                    producer_epoch=who["producer_epoch"],
                    base_sequence=step["sequence"],
                    transactional=step["transactional"],
                )
                data = TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(index=of, records=batch)])
                return ProduceRequest(
                    transactional_id=who["transactional_id"], acks=-1, timeout_ms=30_000, topic_data=[data]
                )
            case "commit":
                offset = TxnOffsetCommitRequestPartition(partition_index=of, committed_offset=step["offset"])
                topics = [TxnOffsetCommitRequestTopic(name=self.topic, partitions=[offset])]
                return TxnOffsetCommitRequest(**who, group_id=self.group(step), topics=topics)
            case "mark":
                del who["transactional_id"]
                named = [WritableTxnMarkerTopic(name=self.topic, partition_indexes=step["partitions"])]
                if "group" in step:
                    index = partition_for(self.group(step), OFFSETS_PARTITIONS)
                    named.append(WritableTxnMarkerTopic(name=OFFSETS, partition_indexes=[index]))
                marker = WritableTxnMarker(
                    **who, transaction_result=step["commit"], topics=named, coordinator_epoch=step["coordinator"]
                )
                return WriteTxnMarkersRequest(markers=[marker])
            case "ends":
                asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in everywhere]
                listed = ListOffsetsTopic(name=self.topic, partitions=asked)
                return ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[listed])
            case "fetch":
                wanted = FetchPartition(partition=of, fetch_offset=0, partition_max_bytes=1_000_000)
                fetched = [FetchTopic(topic=self.topic, partitions=[wanted])]
                return FetchRequest(
                    max_wait_ms=0,
                    min_bytes=1,
                    max_bytes=50_000_000,
                    isolation_level=1,
                    session_epoch=-1,
                    topics=fetched,
                )
            case "committed":
                known = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=everywhere)]
                group = OffsetFetchRequestGroup(group_id=self.group(step), topics=known)
                return OffsetFetchRequest(groups=[group], require_stable=step["stable"])
            case "producers":
                return DescribeProducersRequest(topics=[TopicRequest(name=self.topic, partition_indexes=everywhere)])
        raise AssertionError(step)

    def plain(self, value: Any, field_name: str = "") -> Any:
        """Return an answer as the walks have it: without what is empty, lists in no order of their own."""
        if isinstance(value, Struct):
            fields = ((field.name, self.plain(getattr(value, field.name), field.name)) for field in value.wire_fields)
            return {name: shown for name, shown in fields if name not in _UNTOLD and shown not in _EMPTY}
        if isinstance(value, list):
            return sorted(map(self.plain, value), key=order_of)
        if isinstance(value, str):
            return value.removeprefix(self._prefix)
        if field_name == "producer_id":
            wrong = self._names.get(value - _WRONG)
            return self._names.get(value, value if wrong is None else f"not {wrong}")
        if field_name in ("transaction_start_time_ms", "log_append_time_ms"):
            return value if value <= 0 else "then"
        return value if isinstance(value, bool) or not isinstance(value, int) else int(value)


def wait_until_coordinated(address: str) -> None:
    """Have both coordinators' topics made, and wait until their partitions are loaded."""
    deadline = time.monotonic() + DEADLINE_S
    with WireClient(address) as client:
        for number in range(50):
            asked = InitProducerIdRequest(
                transactional_id=f"first-{number}", transaction_timeout_ms=1_000, producer_id=-1, producer_epoch=-1
            )
            offsets = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=f"first-{number}", topics=[])])
            for kind in (0, 1):
                client.ask(FindCoordinatorRequest(key=f"first-{number}", key_type=kind), 2)
            while client.ask(asked, 1).error_code or client.ask(offsets, 8).groups[0].error_code:
                if time.monotonic() > deadline:
                    raise TimeoutError("no coordinator")
                time.sleep(0.05)


def settle(client: WireClient, transactional_ids: list[str]) -> None:
    """Wait until every partition has its marker: Kafka answers before."""
    deadline = time.monotonic() + DEADLINE_S
    asked = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    while any(state.transaction_state.startswith("Prepare") for state in client.ask(asked, 0).transaction_states):
        if time.monotonic() > deadline:
            raise TimeoutError("markers are missing")
        time.sleep(0.002)


def order_of(value: Any) -> str:
    """A key by which plain values sort."""
    return json.dumps(value, sort_keys=True)
