"""What the user sees where the cluster refuses for want of rights."""

from __future__ import annotations

import pytest

from cli.framework.failure import failure_of
from engine.admin.cluster.errors import Refused
from engine.common.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("code", "where", "resource"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic orders", "topic orders"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic orders partition 3", "topic orders"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "broker 1", "the topic"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group billing", "group billing"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "topic orders", "the cluster"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None, "the cluster"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional id t", "transactional id t"),
        (ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, None, "the delegation token"),
    ],
)
def test_it_names_the_resource_and_whom_to_ask(code: ErrorCode, where: str | None, resource: str) -> None:
    failure = failure_of(Refused(code, where=where)).as_json()
    assert (failure["code"], failure["kind"], failure["kafka_error"]) == (4, "authorization", code.name)
    assert failure["hint"] == f"access denied: ask an administrator of the cluster for an ACL on {resource}"


def test_a_code_that_no_operation_has_put_in_words_is_of_the_same_kind() -> None:
    failure = failure_of(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")).as_json()
    assert (failure["code"], failure["kind"]) == (4, "authorization")


def test_other_refusals_stay_refusals() -> None:
    assert failure_of(Refused(ErrorCode.POLICY_VIOLATION)).kind == "refused"
