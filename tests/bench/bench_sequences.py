"""What a broker keeps of very many things that came and went, and how long it holds its event loop meanwhile.

Each row makes as many things as ``KLAMM_BENCH_COUNT`` (2,000) says, ends all of them, and does the same again with
other names. What the second round adds to the broker's memory (RssAnon) should be next to nothing: the first has made
what lasts. The notices of changed settings last for 15 minutes, as in Kafka. CPU is that of the loop's thread between
two probes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_controller import take_held_ms
from bench_large_requests import memory_kb
from tabulate import tabulate
from wire_client import WireClient, create_topic, wait_until_led

from engine.common.errors import KlammError
from engine.kafka.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from engine.kafka.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from engine.local.cluster import LocalCluster
from engine.local.local_broker import LocalBroker

COUNT = int(os.environ.get("KLAMM_BENCH_COUNT", "2000"))
AT_ONCE = 500
SETTLES_S = 10.0
SETTINGS = {"file.delete.delay.ms": "0", "log.cleaner.enable": "false"}
_TOPIC_RESOURCE = 2


def in_portions(names: list[str], work: Callable[[list[str]], object]) -> None:
    for start in range(0, len(names), AT_ONCE):
        work(names[start : start + AT_ONCE])


def refused_nothing(results: list[Any]) -> None:
    for result in results:
        if result.error_code:
            raise KlammError(f"refused: {result.error_code} {getattr(result, 'error_message', '')}")


def topics(client: WireClient, address: str, names: list[str]) -> None:
    """With a setting each; they are led before they are deleted."""

    def create(some: list[str]) -> None:
        wanted = [
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="retention.ms", value="100000")],
            )
            for name in some
        ]
        refused_nothing(client.ask(CreateTopicsRequest(topics=wanted, timeout_ms=120_000), 5).topics)
        wait_until_led(address, *some)

    def delete(some: list[str]) -> None:
        refused_nothing(client.ask(DeleteTopicsRequest(topic_names=some, timeout_ms=120_000), 4).responses)

    in_portions(names, create)
    in_portions(names, delete)


def users(client: WireClient, _: str, names: list[str]) -> None:
    """With a SCRAM credential each."""

    def add(some: list[str]) -> None:
        credentials = [
            ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=bytes(32))
            for name in some
        ]
        refused_nothing(client.ask(AlterUserScramCredentialsRequest(upsertions=credentials), 0).results)

    def remove(some: list[str]) -> None:
        gone = [ScramCredentialDeletion(name=name, mechanism=1) for name in some]
        refused_nothing(client.ask(AlterUserScramCredentialsRequest(deletions=gone), 0).results)

    in_portions(names, add)
    time.sleep(1)
    in_portions(names, remove)


def quotas(client: WireClient, _: str, names: list[str]) -> None:
    """Of a client id each."""

    def change(some: list[str], *, removes: bool) -> None:
        entries = [
            RequestEntryData(
                entity=[RequestEntityData(entity_type="client-id", entity_name=name)],
                ops=[OpData(key="producer_byte_rate", value=1e6, remove=removes)],
            )
            for name in some
        ]
        refused_nothing(client.ask(AlterClientQuotasRequest(entries=entries), 1).entries)

    in_portions(names, lambda some: change(some, removes=False))
    time.sleep(1)
    in_portions(names, lambda some: change(some, removes=True))


def connections(_: WireClient, address: str, names: list[str]) -> None:
    """One after the other, each of a client with a name and a version of its own."""
    for name in names:
        with WireClient(address, client_id=name) as client:
            client.ask(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)


def changes(client: WireClient, _: str, names: list[str]) -> None:
    """Of one topic's setting, one after the other."""
    for number in range(len(names)):
        change = AlterableConfig(name="retention.ms", config_operation=0, value=str(100_000 + number))
        resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name="changed", configs=[change])
        refused_nothing(client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses)


def row(broker: LocalBroker, work: Callable[[WireClient, str, list[str]], None]) -> list[object]:
    kept_kb, held_ms, started_s = [], 0.0, time.monotonic()
    for number in range(2):
        before_kb = memory_kb(broker, "RssAnon")
        asyncio.run(take_held_ms(broker))
        with WireClient(broker.address, timeout_s=240) as client:
            work(client, broker.address, [f"{work.__name__}-{number}-{each}" for each in range(COUNT)])
        time.sleep(SETTLES_S)
        held_ms = max(held_ms, asyncio.run(take_held_ms(broker))[1])
        kept_kb.append(memory_kb(broker, "RssAnon") - before_kb)
    figures = f"{time.monotonic() - started_s:.0f} {held_ms:.0f} {kept_kb[0]:,} {kept_kb[1]:,}"
    return [f"{COUNT:,} {work.__name__}", *figures.split()]


def main() -> None:
    command = (sys.executable, str(Path(__file__).with_name("gauged_broker.py")))
    with LocalCluster(1, config=SETTINGS, commands={0: command}) as cluster:
        create_topic(cluster.bootstrap_servers, "changed")
        rows = [row(cluster.broker(0), work) for work in (connections, changes, users, quotas, topics)]
    print(tabulate(rows, ("", "took, s", "CPU held, ms", "kept, kB", "by the second round"), disable_numparse=True))


if __name__ == "__main__":
    main()
