"""Requests about quotas: what is stored and told, what is refused, and what is enforced."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import count

from patience import wait_for
from side_by_side import SideBySide
from wire_client import WireClient

from engine.kafka.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from engine.kafka.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest
from engine.kafka.protocol.apis.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.declaration import Request

EXACT, DEFAULT, ANY = range(3)
Entity = Mapping[str, str | None]
Quotas = Mapping[str, float | None]


def altered(*changes: tuple[Entity, Quotas], validate_only: bool = False) -> AlterClientQuotasRequest:
    """Set quotas; None drops one."""
    entries = [
        RequestEntryData(
            entity=[RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
        )
        for entity, quotas in changes
    ]
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


_later = (f"later-{number}" for number in count())


def set_quotas(addresses: Iterable[str], *changes: tuple[Entity, Quotas]) -> None:
    """Change quotas on brokers, each alone in its cluster, and wait until these have heard of it.

    A broker hears of changes in their order. So it knows them once it holds back a client that gets its limit later.
    """
    for address in addresses:
        later = next(_later)
        with WireClient(address, client_id="admin") as client:
            for sent in (changes, [({"client-id": later}, {"request_percentage": 0.0})]):
                for entry in client.ask(altered(*sent), 1).entries:
                    assert entry.error_code == 0, entry
            wait_for(partial(_is_held_back, address, later), f"{address} heard of {changes}")
            client.ask(altered(({"client-id": later}, {"request_percentage": None})), 1)


def _is_held_back(address: str, client_id: str) -> bool:
    """Ask on a new connection, since nothing is read from one that is held back."""
    with WireClient(address, client_id=client_id) as client:
        return bool(client.ask(MetadataRequest(topics=[]), 9).throttle_time_ms)


def asked(*conditions: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    components = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in conditions]
    return DescribeClientQuotasRequest(components=components, strict=strict)


ENTITIES: tuple[Entity, ...] = (
    {"user": "alice"},
    {"user": "al ice/§*~"},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
    {"user": "alice", "client-id": "app"},
    {"user": "alice", "client-id": None},
    {"user": None, "client-id": "app"},
    {"user": None, "client-id": None},
    {"user": "bob", "client-id": "only"},
)

CONDITIONS: tuple[tuple[tuple[str, int, str | None], ...], ...] = (
    (),
    (("user", ANY, None),),
    (("user", EXACT, "alice"),),
    (("user", EXACT, "nobody"),),
    (("user", DEFAULT, None),),
    (("client-id", ANY, None),),
    (("client-id", EXACT, "app"),),
    (("client-id", DEFAULT, None),),
    (("user", EXACT, "alice"), ("client-id", EXACT, "app")),
    (("user", ANY, None), ("client-id", EXACT, "app")),
    (("user", EXACT, "alice"), ("client-id", ANY, None)),
    (("user", DEFAULT, None), ("client-id", DEFAULT, None)),
    (("ip", ANY, None),),
    (("ip", EXACT, "127.0.0.1"),),
    (("ip", EXACT, "127.0.0.9"),),
    (("ip", DEFAULT, None),),
    (("ip", ANY, None), ("user", ANY, None)),
    (("user", ANY, None), ("user", EXACT, "alice")),
    (("client-id", ANY, None), ("client-id", ANY, None)),
    (("ip", ANY, None), ("ip", ANY, None)),
    (("", ANY, None),),
    (("group", ANY, None),),
    (("user", 7, None),),
    (("user", EXACT, None),),
)


def told_quotas(both: SideBySide) -> None:
    """AlterClientQuotas and DescribeClientQuotas: every kind of entity, every condition, drops."""
    rates = {"producer_byte_rate": 1e9, "request_percentage": 99999.5, "controller_mutation_rate": 1e8}
    both.ask("set", altered(*((entity, rates) for entity in ENTITIES)), [1])
    both.ask("set", altered(({"ip": "127.0.0.1"}, {"connection_creation_rate": 1e6})), [0])
    both.ask("set", altered(({"ip": None}, {"connection_creation_rate": 1e8})), [0])
    for conditions in CONDITIONS:
        for strict in (False, True):
            both.ask(f"{conditions} {strict}", asked(*conditions, strict=strict))
    both.ask("drop", altered(({"user": "alice"}, dict.fromkeys(rates))), [1])
    both.ask("a user with clients only", asked())
    both.ask("drop", altered(({"user": "bob", "client-id": "only"}, dict.fromkeys((*rates, "nonsense")))), [1])
    for entity in ENTITIES:
        both.ask("drop", altered((entity, dict.fromkeys(rates))), [1])
    both.ask("drop", altered(*(({"ip": ip}, {"connection_creation_rate": None}) for ip in (None, "127.0.0.1"))), [1])
    both.ask("nothing is left", asked())


def odd_quotas(both: SideBySide) -> None:
    """What is refused, and what Kafka takes although it makes no sense."""
    user: Entity = {"user": "odd"}
    values = (0.0, -1.0, 0.5, 1e-7, 1e300, -1e300, 2.0**63, 9e18, math.inf, -math.inf, 1e7, 1234567.875, 1e-3, 1e-5)
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "nonsense")
    for key in (*keys, "connection_creation_rate", "SCRAM-SHA-256"):
        for value in values:
            # Kafka calls the key of a password its own failure.
            unlike = {"error_code", "error_message"} if key == "SCRAM-SHA-256" else ()
            both.ask(f"{key}={value}", altered((user, {key: value})), [1], unlike=unlike)
            both.ask(f"{key}={value} is kept", asked(("user", EXACT, "odd")), [1])
    both.ask("drop", altered((user, dict.fromkeys(keys))), [1])
    for value in (0.0, -1.0, 0.5, 2.0**31, 2.0**31 - 1, math.inf):
        both.ask(f"ip {value}", altered(({"ip": "127.0.0.7"}, {"connection_creation_rate": value})), [1])
        both.ask(f"ip {value} is kept", asked(("ip", EXACT, "127.0.0.7")), [1])
    both.ask("drop", altered(({"ip": "127.0.0.7"}, {"connection_creation_rate": None})), [1])
    rate = {"producer_byte_rate": 1000.0}
    entities: Iterable[Entity] = (
        {},
        {"user": ""},
        {"client-id": ""},
        {"ip": ""},
        {"group": "g"},
        {"user": "a", "ip": "127.0.0.1"},
        {"user": "a", "group": "g"},
        {"ip": "127.0.0.1"},
        {"ip": "no such host.invalid"},
        {"ip": "300.0.0.1"},
        {"ip": "::1"},
        {"ip": "localhost"},
    )
    for entity in entities:
        both.ask(f"{entity}", altered((entity, rate), validate_only=True))
        both.ask(f"{entity}", altered((entity, {"connection_creation_rate": 5.0}), validate_only=True))
    both.ask("checked only", altered((user, rate), validate_only=True))
    both.ask("nothing was kept", asked())
    both.ask("one of two", altered((user, rate), (user | {"client-id": "c"}, {"nonsense": 1.0})))
    both.ask("one was kept", asked())
    both.ask("drop", altered((user, {"producer_byte_rate": None})))
    both.ask("nothing", altered())


def topic_changes_throttled(both: SideBySide) -> None:
    """KIP-599: a strict quota refuses while tokens are owed, an old client's changes pass."""
    addresses = [side.address for side in both.sides.values()]
    set_quotas(addresses, ({"client-id": "wire"}, {"controller_mutation_rate": 1.0}))

    def made(name: str, partitions: int) -> CreateTopicsRequest:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        return CreateTopicsRequest(topics=[topic], timeout_ms=15_000, validate_only=False)

    def ask(what: str, request: Request, version: int) -> list[int]:
        """Ask each on a new connection, since nothing is read from one that has to wait; return how long it has to."""
        waits, plain = [], []
        for side in both.sides.values():
            with side.another_connection() as client:
                answer = client.ask(request, version)
            waits.append(answer.throttle_time_ms)
            plain.append(side.plain(answer))
        both.compare(what, version, *plain, unlike={"throttle_time_ms", "topic_id"})
        return waits

    # Eleven samples of one second are a burst of eleven partitions.
    assert ask("a large first", made("mutated-0", 25), 7) == [0, 0]
    for version in (6, 7):
        waits = ask("refused", made("mutated-1", 1), version)
        both.compare("waits", version, True, 5_000 < min(waits) <= max(waits) < 14_000, unlike=())
    ask("checked only", CreateTopicsRequest(topics=made("mutated-1", 1).topics, timeout_ms=9, validate_only=True), 7)
    grown = CreatePartitionsTopic(name="mutated-0", count=26, assignments=None)
    ask("refused", CreatePartitionsRequest(topics=[grown], timeout_ms=15_000, validate_only=False), 3)
    ask("refused", DeleteTopicsRequest(topic_names=["mutated-0"], timeout_ms=9_000), 5)
    waits = ask("an old client", made("mutated-2", 1), 5)
    both.compare("waits", 5, True, min(waits) > 5_000)
    set_quotas(addresses, ({"client-id": "wire"}, {"controller_mutation_rate": None}))


AREAS = (told_quotas, odd_quotas, topic_changes_throttled)
