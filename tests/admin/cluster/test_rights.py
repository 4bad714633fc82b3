"""Which rights an answer shows to be missing, and whose."""

from __future__ import annotations

import pytest

from engine.admin.cluster.errors import FailureKind, Refused
from engine.admin.cluster.rights import Right, asked_for, missing_rights
from engine.common.acl import AclOperation, Requirement, ResourceType
from engine.common.errors import ErrorCode
from engine.kafka.client.security import PLAINTEXT, security_of
from engine.kafka.protocol.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from engine.kafka.protocol.declaration import Request, Response

TOPIC, GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED


def committed(*codes: int) -> OffsetCommitResponse:
    partitions = [OffsetCommitResponsePartition(partition_index=at, error_code=code) for at, code in enumerate(codes)]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=partitions)])


@pytest.mark.parametrize(
    ("request_", "response", "rights"),
    [
        (OffsetCommitRequest(group_id="g"), committed(0, TOPIC, TOPIC), {"read on topic orders"}),
        (OffsetCommitRequest(group_id="g"), committed(GROUP, 0), {"read on group g"}),
        (OffsetCommitRequest(group_id="g"), committed(0, ErrorCode.NOT_COORDINATOR), set()),
        (FindCoordinatorRequest(key="g"), FindCoordinatorResponse(error_code=GROUP), {"describe on group g"}),
        (
            FindCoordinatorRequest(key="t", key_type=1),
            FindCoordinatorResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            {"describe on transactional id t"},
        ),
        (
            CreateTopicsRequest(),
            CreateTopicsResponse(topics=[CreatableTopicResult(name="orders", topic_config_error_code=TOPIC)]),
            set(),
        ),
        (DescribeLogDirsRequest(), DescribeLogDirsResponse(results=[]), {"describe on the cluster"}),
    ],
)
def test_what_was_missing(request_: Request, response: Response, rights: set[str]) -> None:
    assert set(map(str, missing_rights(request_, response))) == rights


def test_the_right_that_implies_the_missing_one_is_asked_for_where_it_is_needed() -> None:
    missing = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")
    assert asked_for(missing, [Requirement.of("Read Group")]) == missing
    needed = [Requirement.of("Create Topic"), Requirement.of("Write Topic")]
    assert asked_for(missing, needed) == missing._replace(operation=AclOperation.WRITE)
    write = Right(AclOperation.WRITE, ResourceType.TOPIC, "orders")
    assert asked_for(write, [Requirement.of("Read Topic")]) == write


def test_an_operations_own_words_stay() -> None:
    right = Right(AclOperation.READ, ResourceType.GROUP, "it's")
    plain = Refused(GROUP, where="group it's").for_want_of(right, "User:a b")
    assert (str(plain.message), plain.kind) == ("User:a b lacks read on group it's", FailureKind.AUTHORIZATION)
    kept = Refused(GROUP, "the lock cannot be taken").for_want_of(right, None)
    assert str(kept.message) == "the lock cannot be taken: this login lacks read on group it's"
    assert Refused(GROUP, "Group authorization failed.").for_want_of(right, "User:a").message != kept.message


PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al ice" password="p";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
KERBEROS = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k"'


@pytest.mark.parametrize(
    ("mechanism", "jaas", "principal"),
    [
        ("PLAIN", PLAIN, "User:al ice"),
        ("SCRAM-SHA-512", f'{SCRAM} username="id" password="hmac";', "User:id"),
        ("SCRAM-SHA-512", f'{SCRAM} username="id" password="hmac" tokenauth="true";', None),
        ("OAUTHBEARER", f'{OAUTH} unsecuredLoginStringClaim_sub="svc";', "User:svc"),
        (
            "OAUTHBEARER",
            f'{OAUTH} unsecuredLoginStringClaim_sub="s" unsecuredLoginStringClaim_name="n" '
            'unsecuredLoginPrincipalClaimName="name";',
            "User:n",
        ),
        ("GSSAPI", f'{KERBEROS} principal="alice/host.example@REALM" serviceName="kafka";', "User:alice"),
    ],
)
def test_the_principal_of_a_login(mechanism: str, jaas: str, principal: str | None) -> None:
    entries = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    assert security_of(entries).principal == principal


def test_the_principal_without_a_login() -> None:
    assert PLAINTEXT.principal == security_of({"security.protocol": "SSL"}).principal == "User:ANONYMOUS"
