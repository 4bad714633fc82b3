"""Reads and changes access rules: over the wire, or in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine.admin.acls.checks import OPEN_WITHOUT_RULES, SUPER_USERS
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Refused
from engine.admin.cluster.target import Side, Source
from engine.admin.cluster.wire import WireCluster
from engine.admin.cluster.wire_failures import refuse
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.kafka.acls import AclBinding, AclEntry, AclFilter, PatternType, Permission, ResourcePattern, type_code
from engine.kafka.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from engine.kafka.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from engine.kafka.protocol.apis.describe_acls import DescribeAclsRequest
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

_ANY, _MATCH = 1, 2
_BROKER = 4
"""The type of resource that has a broker's settings."""
_PER_REQUEST = 500
_WHERE = "access rules"


async def read_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """Return the rules that any of the filters means, in order.

    Raises:
        Refused: the brokers have no authorizer, or do not let this principal see rules.
    """
    if cluster.source is Source.ZOOKEEPER:
        rules = [rule for rule in await _all_in_zookeeper(cluster) if any(wanted.takes(rule) for wanted in filters)]
    else:
        wire = await cluster.wire()
        rules = [rule for wanted in filters for rule in await _described(wire, wanted)]
    return sorted(set(rules), key=lambda rule: rule.sort_key)


async def read_authorizer_files(cluster: Cluster) -> dict[str, str | None] | None:
    """Return which of the authorizer's settings a broker's file has, with the values that it shows.

    None if that is not known: brokers are not named, do not answer, or refuse it.
    """
    if not (cluster.target.bootstrap and cluster.target.may_ask_brokers):
        return None
    try:
        wire = await cluster.wire()
        broker_id = (await wire.metadata([])).brokers[0].node_id
        asked = DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(broker_id), configuration_keys=[SUPER_USERS, OPEN_WITHOUT_RULES]
        )
        (described,) = (await wire.call_broker(broker_id, DescribeConfigsRequest(resources=[asked]))).results
    except AdminError:
        return None
    return (
        {config.name: config.value for config in described.configs} if described.error_code == ErrorCode.NONE else None
    )


async def _all_in_zookeeper(cluster: Cluster) -> list[AclBinding]:
    from engine.kafka.zk.kafka_client import KafkaZkClient

    by_pattern = await KafkaZkClient(await cluster.zookeeper()).acls.get_all()
    return [AclBinding(pattern, entry) for pattern, entries in by_pattern.items() for entry in entries]


async def add_acls(cluster: Cluster, rules: Sequence[AclBinding]) -> list[AdminError]:
    """Add rules; one that exists already is no error. Return the refusals.

    Raises:
        BadRequest: nothing may be changed here.
        Refused: none could be added.
    """
    cluster.check_may_change()
    if cluster.changes_by is Side.ZOOKEEPER:
        from engine.kafka.zk.kafka_client import KafkaZkClient

        acls = KafkaZkClient(await cluster.zookeeper()).acls
        for pattern, entries in _by_pattern(rules).items():
            await acls.change(pattern, lambda before, more=entries: (*before, *more))  # type: ignore[misc]
        return []
    wire = await cluster.wire()
    refusals: list[AdminError] = []
    for begin in range(0, len(rules), _PER_REQUEST):
        batch = rules[begin : begin + _PER_REQUEST]
        response = await wire.call_any(CreateAclsRequest(creations=[_creation(rule) for rule in batch]))
        for rule, result in zip(batch, response.results, strict=True):
            try:
                refuse(result.error_code, result.error_message, _where(rule.pattern))
            except AdminError as refusal:
                refusals.append(refusal)
        if len(refusals) == begin + len(batch):
            raise refusals[0]
    return refusals


async def remove_acls(cluster: Cluster, rules: Sequence[AclBinding]) -> list[AclBinding]:
    """Remove exactly these rules, and return those that were there.

    Raises:
        BadRequest: nothing may be changed here.
        Refused: the cluster does not allow it.
    """
    cluster.check_may_change()
    if cluster.changes_by is Side.ZOOKEEPER:
        return await _remove_znodes(cluster, rules)
    wire, removed = await cluster.wire(), []
    for begin in range(0, len(rules), _PER_REQUEST):
        batch = rules[begin : begin + _PER_REQUEST]
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_wire_filter(filter_of(rule))) for rule in batch])
        response = await wire.call_any(request)
        for rule, result in zip(batch, response.filter_results, strict=True):
            refuse(result.error_code, result.error_message, _where(rule.pattern))
            for match in result.matching_acls:
                refuse(match.error_code, match.error_message, _where(rule.pattern))
            removed += [rule] * bool(result.matching_acls)
    return removed


async def _remove_znodes(cluster: Cluster, rules: Sequence[AclBinding]) -> list[AclBinding]:
    from engine.kafka.zk.kafka_client import KafkaZkClient

    acls, removed = KafkaZkClient(await cluster.zookeeper()).acls, []
    for pattern, entries in _by_pattern(rules).items():
        gone = set(entries)
        before = await acls.change(pattern, lambda held, gone=gone: [rule for rule in held if rule not in gone])  # type: ignore[misc]
        removed += [AclBinding(pattern, entry) for entry in entries if entry in before]
    return removed


def filter_of(rule: AclBinding) -> AclFilter:
    """Return the filter that means this rule alone."""
    pattern, entry = rule.pattern, rule.entry
    return AclFilter(
        pattern.resource_type, pattern.name, pattern.pattern_type, entry.principal, entry.host, entry.operation,
        entry.permission,
    )  # fmt: skip


def _by_pattern(rules: Iterable[AclBinding]) -> dict[ResourcePattern, list[AclEntry]]:
    by_pattern: dict[ResourcePattern, list[AclEntry]] = {}
    for rule in rules:
        by_pattern.setdefault(rule.pattern, []).append(rule.entry)
    return by_pattern


async def _described(wire: WireCluster, wanted: AclFilter) -> list[AclBinding]:
    response = await wire.call_any(DescribeAclsRequest(**_wire_filter(wanted)))
    refuse(response.error_code, response.error_message, _WHERE)
    types = {type_code(resource): resource for resource in ResourceType}
    kinds = {kind.code: kind for kind in PatternType}
    permissions = {permission.code: permission for permission in Permission}
    try:
        return [
            AclBinding(
                ResourcePattern(types[described.resource_type], described.resource_name, kinds[described.pattern_type]),
                AclEntry(acl.principal, acl.host, AclOperation(acl.operation), permissions[acl.permission_type]),
            )
            for described in response.resources
            for acl in described.acls
        ]
    except (KeyError, ValueError) as unknown:
        message = f"it has a rule of a kind that klamm does not know: {unknown}"
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, message, where=_WHERE) from unknown


def _wire_filter(wanted: AclFilter) -> dict[str, Any]:
    kind = _MATCH if wanted.matches_name else _ANY if wanted.pattern_type is None else wanted.pattern_type.code
    return {
        "resource_type_filter": _ANY if wanted.resource_type is None else type_code(wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": kind,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": _ANY if wanted.operation is None else wanted.operation.value,
        "permission_type": _ANY if wanted.permission is None else wanted.permission.code,
    }


def _creation(rule: AclBinding) -> AclCreation:
    pattern, entry = rule.pattern, rule.entry
    return AclCreation(
        resource_type=type_code(pattern.resource_type),
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type.code,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation.value,
        permission_type=entry.permission.code,
    )


def _where(pattern: ResourcePattern) -> str:
    return f"rules on {pattern.resource_type.value} {pattern.name}"
