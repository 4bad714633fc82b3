"""DescribeAcls (29): v0–v3. CreateAcls (30): v0–v3. DeleteAcls (31): v0–v3.

Behaviour
* List, add and remove access rules; without an authorizer: SECURITY_DISABLED.
* A rule is in force on this broker when it is answered, and on the others within moments.
* A filter with the code that stands for "unknown" is INVALID_REQUEST. Kafka closes the connection.
* No rule of a request is added if one has a code that only filters have: each is UNKNOWN_SERVER_ERROR, as in Kafka 3.9.
* Otherwise each rule has its own outcome: INVALID_REQUEST for an empty name, a cluster of another name than
  ``kafka-cluster``, an unknown code, or a prefix before IBP 2.0-IV1, whose brokers would not obey it; as in
  Kafka 3.9, UNKNOWN_SERVER_ERROR for a malformed principal.
* A filter with an unknown code matches no rule.

Version notes
* v1 prefixed patterns (KIP-290)   * v2 flexible   * v3 user resources
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final

from engine.broker.handlers.answer_lists import answer_list, kept
from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.handlers.in_turns import in_turns
from engine.broker.handlers.registry import handles
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import CoordinationError, ErrorCode, KafkaError
from engine.kafka.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    PatternType,
    Permission,
    ResourcePattern,
    type_code,
)
from engine.kafka.config.metadata_version import are_prefixed_acls_supported
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from engine.kafka.protocol.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from engine.kafka.protocol.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from engine.runtime.turns import Breather

CHANGES_AT_ONCE_MAX: Final = 50
"""Patterns that are changed at the same time: ZooKeeper answers each after about a millisecond."""

_UNKNOWN, _ANY, _MATCH = 0, 1, 2
_TYPES = {type_code(resource): resource for resource in ResourceType}
_PATTERNS = {pattern_type.code: pattern_type for pattern_type in PatternType}
_PERMISSIONS = {permission.code: permission for permission in Permission}
_OPERATIONS = {int(operation): operation for operation in AclOperation}
_DISABLED = "No Authorizer is configured."
_FAILED = "Failed to create ACL"
_UNKNOWN_SAID = "The filter contains unknown elements"

_Taker = tuple[int, AclFilter, DeleteAclsFilterResult]
"""The place of a filter in its request, the filter, and its part of the answer."""


@handles(ApiKey.DESCRIBE_ACLS, requires=["Describe Cluster"])
def describe_acls(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """List the rules that a filter takes."""
    authorizer = context.broker.authorizer
    if authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    if _has_unknown(request):
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=_UNKNOWN_SAID)
    wanted = _filter(request, request.resource_name_filter, request.resource_type_filter)
    if wanted is None:
        return DescribeAclsResponse()
    resources = []
    for pattern, entries in authorizer.rules.all.items():
        taken = [entry for entry in entries if wanted.takes_entry(entry)] if wanted.takes_pattern(pattern) else []
        if taken:
            resources.append(
                DescribeAclsResource(
                    resource_type=type_code(pattern.resource_type),
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type.code,
                    acls=[
                        AclDescription(
                            principal=entry.principal,
                            host=entry.host,
                            operation=entry.operation,
                            permission_type=entry.permission.code,
                        )
                        for entry in taken
                    ],
                )
            )
    return DescribeAclsResponse(resources=resources)


@handles(ApiKey.CREATE_ACLS, requires=["Alter Cluster"])
async def create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    results = await in_turns(request.creations, lambda _: AclCreationResult())
    added: dict[ResourcePattern, list[tuple[AclEntry, AclCreationResult]]] = {}
    breather = Breather()
    is_for_filters = False
    for creation in request.creations:
        codes = (creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type)
        is_for_filters = is_for_filters or _ANY in codes or creation.resource_pattern_type == _MATCH
        await breather.give_way()
    for creation, result in zip(request.creations, results, strict=True):
        await breather.give_way()
        try:
            if context.broker.authorizer is None:
                raise KafkaError(ErrorCode.SECURITY_DISABLED, _DISABLED)
            if is_for_filters:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            rule = _rule(creation)
            is_prefixed = rule.pattern.pattern_type is PatternType.PREFIXED
            if is_prefixed and not are_prefixed_acls_supported(context.broker.config.inter_broker_protocol_version):
                raise KafkaError(ErrorCode.INVALID_REQUEST, _FAILED)
            added.setdefault(rule.pattern, []).append((rule.entry, result))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message

    async def add(pattern: ResourcePattern) -> None:
        entries = [entry for entry, _ in added[pattern]]
        try:
            await context.broker.zk.acls.change(pattern, lambda before: (*before, *entries))
            await _refresh(context.broker, pattern)
        except CoordinationError as error:
            for _, result in added[pattern]:
                result.error_code, result.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)

    await _some_at_once(add, added)
    return CreateAclsResponse(results=results)


@handles(ApiKey.DELETE_ACLS, requires=["Alter Cluster"])
async def delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the rules that the filters match; a rule that several match is reported under the first."""
    authorizer = context.broker.authorizer
    results, breather = answer_list(context, DeleteAclsResponse, "filter_results"), Breather()
    # As in Kafka, a rule that another broker has just added is found if the filter names its pattern.
    named: dict[ResourcePattern, list[_Taker]] = {}
    broad: list[_Taker] = []
    for place, asked in enumerate(request.filters):
        await breather.give_way()
        result = DeleteAclsFilterResult(matching_acls=[])
        taking = None
        if authorizer is None:
            result.error_code, result.error_message = ErrorCode.SECURITY_DISABLED, _DISABLED
        elif _has_unknown(asked):
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, _UNKNOWN_SAID
        else:
            taking = _filter(asked, asked.resource_name_filter, asked.resource_type_filter)
        if taking is None:
            results.append(result)
        else:
            pattern = taking.only_pattern
            takers = broad if pattern is None else named.setdefault(pattern, [])
            takers.append((place, taking, kept(results, result)))
    for pattern in [] if authorizer is None else list(authorizer.rules.all):
        for _, each, _ in () if pattern in named else broad:
            await breather.give_way()
            if each.takes_pattern(pattern):
                named[pattern] = []
                break

    async def remove(pattern: ResourcePattern) -> None:
        takers = list(named[pattern])
        for each in broad:
            await breather.give_way()
            if each[1].takes_pattern(pattern):
                takers.append(each)
        takers.sort(key=itemgetter(0))
        taking = [(wanted, result) for _, wanted, result in takers]

        def left(before: tuple[AclEntry, ...]) -> Iterable[AclEntry]:
            return [entry for entry in before if not any(each.takes_entry(entry) for each, _ in taking)]

        try:
            before = await context.broker.zk.acls.change(pattern, left)
            await _refresh(context.broker, pattern)
        except CoordinationError as error:
            for _, result in taking:
                result.error_code, result.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
            return
        for entry in before:
            taker = next((result for each, result in taking if each.takes_entry(entry)), None)
            if taker is not None:
                taker.matching_acls.append(_matching(pattern, entry))

    await _some_at_once(remove, named)
    return DeleteAclsResponse(filter_results=results)


async def _refresh(broker: Broker, pattern: ResourcePattern) -> None:
    if broker.authorizer is not None:
        await broker.authorizer.refresh(pattern)


async def _some_at_once(work: Any, patterns: Iterable[ResourcePattern]) -> None:
    waiting = list(patterns)
    for start in range(0, len(waiting), CHANGES_AT_ONCE_MAX):
        await asyncio.gather(*map(work, waiting[start : start + CHANGES_AT_ONCE_MAX]))


def _has_unknown(asked: Any) -> bool:
    codes = (asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)
    return _UNKNOWN in codes


def _rule(creation: Any) -> AclBinding:
    """Return a rule to add. Raises KafkaError: there is no such rule."""
    resource_type, pattern_type = _TYPES.get(creation.resource_type), _PATTERNS.get(creation.resource_pattern_type)
    if resource_type is ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        message = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if not creation.resource_name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    operation, permission = _OPERATIONS.get(creation.operation), _PERMISSIONS.get(creation.permission_type)
    if resource_type is None or pattern_type is None or operation is None or permission is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, _FAILED)
    kind, colon, name = creation.principal.partition(":")
    if not (kind and colon and name):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    entry = AclEntry(creation.principal, creation.host, operation, permission)
    return AclBinding(ResourcePattern(resource_type, creation.resource_name, pattern_type), entry)


def _filter(asked: Any, name: str | None, resource_type: int) -> AclFilter | None:
    """Return which rules are meant; None if there are no such rules, because a code means nothing."""
    codes = (
        (resource_type, _TYPES),
        (asked.operation, _OPERATIONS),
        (asked.permission_type, _PERMISSIONS),
        (asked.pattern_type_filter, {**_PATTERNS, _MATCH: None}),
    )
    if any(code != _ANY and code not in known for code, known in codes):
        return None
    return AclFilter(
        resource_type=_TYPES.get(resource_type),
        name=name,
        pattern_type=_PATTERNS.get(asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=_OPERATIONS.get(asked.operation),
        permission=_PERMISSIONS.get(asked.permission_type),
        matches_name=asked.pattern_type_filter == _MATCH,
    )


def _matching(pattern: ResourcePattern, entry: AclEntry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=type_code(pattern.resource_type),
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type.code,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission.code,
    )
