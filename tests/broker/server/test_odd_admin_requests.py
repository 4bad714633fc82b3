"""Requests of administrators that make no sense, or name things twice: answered as Apache Kafka 3.9.1 answered them."""

from __future__ import annotations

from typing import Any

import pytest
from wire_client import WireClient, create_topic

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from engine.kafka.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from engine.kafka.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from engine.kafka.protocol.apis.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from engine.kafka.protocol.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from engine.kafka.protocol.declaration import Request


def ask(address: str, request: Request, version: int) -> Any:
    with WireClient(address) as client:
        return client.ask(request, version)


def upsertion(user: str, mechanism: int, iterations: int) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"12345678"
    )


def quotas(address: str, *entries: tuple[list[tuple[str, str | None]], float]) -> list[tuple[Any, ...]]:
    request = AlterClientQuotasRequest(
        entries=[
            RequestEntryData(
                entity=[RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[OpData(key="producer_byte_rate", value=rate)],
            )
            for entity, rate in entries
        ]
    )
    quota_entries = ask(address, request, 1).entries
    return [
        ([(part.entity_type, part.entity_name) for part in entry.entity], entry.error_code) for entry in quota_entries
    ]


def test_of_several_faults_of_a_user_the_last_is_told(address: str) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="odd", mechanism=5)], upsertions=[upsertion("odd", 2, 0)]
    )
    (result,) = ask(address, request, 0).results
    assert (result.error_code, result.error_message) == (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")


@pytest.mark.parametrize("times", [1, 2])
def test_a_user_without_a_name_has_no_credential(address: str, times: int) -> None:
    results = ask(address, DescribeUserScramCredentialsRequest(users=[UserName()] * times), 0)
    assert [(result.error_code, result.error_message) for result in results.results] == [
        (ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
    ]


def test_of_an_entity_that_comes_twice_the_last_change_is_answered(address: str) -> None:
    alice: list[tuple[str, str | None]] = [("user", "alice")]
    assert quotas(address, (alice, 0.5), (alice, 1e6)) == [(alice, ErrorCode.NONE)]
    assert quotas(address, (alice, 2e6), (alice, 0.5)) == [(alice, ErrorCode.INVALID_REQUEST)]
    condition = ComponentData(entity_type="user", match_type=0, match="alice")
    (entry,) = ask(address, DescribeClientQuotasRequest(components=[condition]), 1).entries
    assert [value.value for value in entry.values] == [2e6], "both changes were tried, in their order"


def test_of_a_type_that_an_entity_has_twice_the_last_name_counts(address: str) -> None:
    assert quotas(address, ([("user", ""), ("user", "bob")], 1e6)) == [([("user", "bob")], ErrorCode.NONE)]


def test_an_unknown_way_to_match_is_told_first(address: str) -> None:
    for how in (7, 0):
        odd = ComponentData(entity_type="strange", match_type=how, match=None)
        assert ask(address, DescribeClientQuotasRequest(components=[odd]), 1).error_code == -1


def test_what_is_no_way_to_list_offsets_is_an_error_of_the_server(address: str, topic: str) -> None:
    create_topic(address, topic)
    for version, isolation, number, code in ((7, 5, 1, -1), (7, 1, 1, 0), (0, 0, -1, -1), (0, 0, 1, 0)):
        partition = ListOffsetsPartition(timestamp=-1, max_num_offsets=number if not version else 1)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
        )
        assert ask(address, request, version).topics[0].partitions[0].error_code == code


def test_success_has_an_empty_message_where_kafka_sets_none(address: str) -> None:
    """Kafka's nullable texts begin empty, and some handlers leave them so."""
    assert ask(address, ListPartitionReassignmentsRequest(topics=[]), 0).error_message == ""
    assert ask(address, AlterPartitionReassignmentsRequest(), 0).error_message == ""
    assert ask(address, DescribeUserScramCredentialsRequest(users=[]), 0).error_message == ""
    (result,) = ask(address, AlterUserScramCredentialsRequest(upsertions=[upsertion("new", 1, 4096)]), 0).results
    assert (result.error_code, result.error_message) == (0, "")
