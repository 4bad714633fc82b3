"""Which rights are missing according to a broker's answer: which user lacks which operation on which resource.

Kafka's error codes name only a type of resource. The API says which operation it needs, and the request or the answer
names the resource. Brokers answer some requests in part, or as if nothing existed; ``missing_rights`` finds what it can
in these answers, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from engine.admin.cluster.remedies import Give, Operation, Parameter, Phrase
from engine.common.acl import AclOperation, Requirement, ResourceType
from engine.common.errors import ErrorCode
from engine.common.topic_names import SUITE_TOPIC_PREFIX
from engine.kafka.acls import IMPLIED
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct
from engine.kafka.protocol.types import Array

NOT_TOLD = -(2**31)
"""The bits of what a principal may do, where a broker does not tell (KIP-430)."""

_TYPES: Mapping[ErrorCode, ResourceType] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ResourceType.TOPIC,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ResourceType.GROUP,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ResourceType.CLUSTER,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ResourceType.TRANSACTIONAL_ID,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: ResourceType.USER,
}
_NAMES: Mapping[ResourceType, tuple[str, ...]] = {
    ResourceType.TOPIC: ("name", "topic", "topic_name", "resource_name"),
    ResourceType.GROUP: ("group_id", "group", "key"),
    ResourceType.CLUSTER: (),
    ResourceType.TRANSACTIONAL_ID: ("transactional_id", "key"),
    ResourceType.USER: ("owner_principal_name",),
}
"""The fields that name a resource, in an answer or, where that does not repeat it, in the request."""

NEEDED: Mapping[ApiKey, tuple[Requirement, ...]] = {
    key: tuple(map(Requirement.of, texts.split(", ")))
    for key, texts in {
        ApiKey.ADD_OFFSETS_TO_TXN: "Write TransactionalId, Read Group",
        ApiKey.ADD_PARTITIONS_TO_TXN: "Write TransactionalId, Write Topic",
        ApiKey.ALTER_CLIENT_QUOTAS: "AlterConfigs Cluster",
        ApiKey.ALTER_CONFIGS: "AlterConfigs Cluster, AlterConfigs Topic",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: "Alter Cluster",
        ApiKey.ALTER_REPLICA_LOG_DIRS: "Alter Cluster",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "Alter Cluster",
        ApiKey.CONSUMER_GROUP_DESCRIBE: "Describe Group, Describe Topic",
        ApiKey.CREATE_ACLS: "Alter Cluster",
        ApiKey.CREATE_DELEGATION_TOKEN: "CreateTokens User",
        ApiKey.CREATE_PARTITIONS: "Alter Topic",
        ApiKey.CREATE_TOPICS: "Create Topic, Create Cluster",
        ApiKey.DELETE_ACLS: "Alter Cluster",
        ApiKey.DELETE_GROUPS: "Delete Group",
        ApiKey.DELETE_RECORDS: "Delete Topic",
        ApiKey.DELETE_TOPICS: "Delete Topic",
        ApiKey.DESCRIBE_ACLS: "Describe Cluster",
        ApiKey.DESCRIBE_CLIENT_QUOTAS: "DescribeConfigs Cluster",
        ApiKey.DESCRIBE_CONFIGS: "DescribeConfigs Cluster, DescribeConfigs Topic",
        ApiKey.DESCRIBE_DELEGATION_TOKEN: "DescribeTokens User",
        ApiKey.DESCRIBE_GROUPS: "Describe Group",
        ApiKey.DESCRIBE_LOG_DIRS: "Describe Cluster",
        ApiKey.DESCRIBE_PRODUCERS: "Read Topic",
        ApiKey.DESCRIBE_QUORUM: "Describe Cluster",
        ApiKey.DESCRIBE_TRANSACTIONS: "Describe TransactionalId, Describe Topic",
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "Describe Cluster",
        ApiKey.ELECT_LEADERS: "Alter Cluster",
        ApiKey.END_TXN: "Write TransactionalId",
        ApiKey.FETCH: "Read Topic, ClusterAction Cluster",
        ApiKey.FIND_COORDINATOR: "Describe Group, Describe TransactionalId",
        ApiKey.HEARTBEAT: "Read Group",
        ApiKey.INCREMENTAL_ALTER_CONFIGS: "AlterConfigs Cluster, AlterConfigs Topic",
        ApiKey.INIT_PRODUCER_ID: "Write TransactionalId, IdempotentWrite Cluster",
        ApiKey.JOIN_GROUP: "Read Group",
        ApiKey.LEAVE_GROUP: "Read Group",
        ApiKey.LIST_OFFSETS: "Describe Topic",
        ApiKey.LIST_PARTITION_REASSIGNMENTS: "Describe Cluster",
        ApiKey.METADATA: "Describe Topic, Create Cluster",
        ApiKey.OFFSET_COMMIT: "Read Group, Read Topic",
        ApiKey.OFFSET_DELETE: "Delete Group, Read Topic",
        ApiKey.OFFSET_FETCH: "Describe Group, Describe Topic",
        ApiKey.OFFSET_FOR_LEADER_EPOCH: "Describe Topic, ClusterAction Cluster",
        ApiKey.PRODUCE: "Write Topic, Write TransactionalId, IdempotentWrite Cluster",
        ApiKey.SYNC_GROUP: "Read Group",
        ApiKey.TXN_OFFSET_COMMIT: "Write TransactionalId, Read Group, Read Topic",
        ApiKey.UPDATE_FEATURES: "Alter Cluster",
        ApiKey.WRITE_TXN_MARKERS: "Alter Cluster",
    }.items()
}
"""The rights that the tools' requests need, one for each type of resource: where Kafka takes either of two, the one to
ask for. Brokers refuse in the words of the type alone."""

_READ_CLUSTER = Requirement(AclOperation.DESCRIBE, ResourceType.CLUSTER)


_RULE_ON: Mapping[ResourceType, Parameter] = {
    ResourceType.TOPIC: Parameter.ACL_TOPIC,
    ResourceType.GROUP: Parameter.ACL_GROUP,
    ResourceType.TRANSACTIONAL_ID: Parameter.ACL_TRANSACTIONAL_ID,
    ResourceType.USER: Parameter.ACL_USER,
}


class Right(NamedTuple):
    """An operation on a resource. ``name`` is empty if neither request nor answer named it, and for the cluster."""

    operation: AclOperation
    resource_type: ResourceType
    name: str = ""

    @property
    def kind(self) -> Requirement:
        """What it is on any resource of the type."""
        return Requirement(self.operation, self.resource_type)

    @property
    def is_of_settings(self) -> bool:
        """Whether only settings are hidden without it."""
        return self.operation in (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)

    @property
    def resource(self) -> str:
        """The resource as ``acls explain`` takes it: ``topic:orders``, ``cluster``."""
        return f"{self.resource_type.word}:{self.name}" if self.name else self.resource_type.word

    def __str__(self) -> str:
        return f"{self.operation.word} on {self.resource_words}"

    @property
    def resource_words(self) -> str:
        """The resource in a sentence: ``topic orders``, ``the cluster``."""
        words = self.resource_type.word.replace("-", " ")
        return f"{words} {self.name}" if self.name else f"the {words}"

    @property
    def code(self) -> ErrorCode:
        """The error that a broker answers without it."""
        return next(code for code, resource_type in _TYPES.items() if resource_type is self.resource_type)

    @property
    def remedy_for_all(self) -> Phrase:
        """What changes in the remedy if it is to be for every resource of the type."""
        return Phrase("for all of them: the same with ", Give(_RULE_ON[self.resource_type], shlex.quote("*")))

    def remedy(self, principal: str | None) -> Phrase:
        """Return what an administrator does who wants a principal (None: one that only the brokers know) to have it."""
        on: Parameter | Give | Phrase = Parameter.ACL_ON_CLUSTER
        if self.resource_type is not ResourceType.CLUSTER:
            on = Give(_RULE_ON[self.resource_type], shlex.quote(self.name) if self.name else None)
        if self.resource_type is ResourceType.TOPIC and self.name.startswith(SUITE_TOPIC_PREFIX):
            # The next topic has another name.
            on = Phrase(
                Give(Parameter.ACL_TOPIC, SUITE_TOPIC_PREFIX), " ", Give(Parameter.ACL_PATTERN_TYPE, "prefixed")
            )
        return Phrase(
            "an administrator can allow it: ", Operation.ADD_ACL,
            " ", Give(Parameter.ACL_PRINCIPAL, shlex.quote(principal) if principal else None),
            " ", Give(Parameter.ACL_OPERATION, self.operation.word), " ", on,
        )  # fmt: skip


class ZnodeRight(NamedTuple):
    """The right to read a znode, which its access list gives."""

    path: str
    operation: AclOperation = AclOperation.READ

    @property
    def kind(self) -> str:
        return self.path

    @property
    def resource(self) -> str:
        return f"znode:{self.path}"

    def __str__(self) -> str:
        return f"{self.operation.word} on znode {self.path}"

    def remedy(self, _: str | None) -> Phrase:
        return LOG_IN_AS_BROKERS


LOG_IN_AS_BROKERS = Phrase(
    "log in to ZooKeeper as the brokers, by a JAAS section Client: ", Give(Parameter.JAAS_CONFIG)
)


def asked_for(right: Right, needs: Sequence[Requirement]) -> Right:
    """Return the right to ask for: where ``needs`` holds not the missing one but one that implies it, that."""
    if right.kind in needs:
        return right
    stronger = (need.operation for need in needs if need.resource_type is right.resource_type)
    needed = next(
        (operation for operation in stronger if operation in IMPLIED.get(right.operation, ())), right.operation
    )
    return right._replace(operation=needed)


def missing_rights(request: Request, response: Response) -> Iterator[Right]:
    """Yield each missing right that made a broker refuse something or leave it out, once for each refusal."""
    key = request.api_key
    if key is ApiKey.DESCRIBE_LOG_DIRS and not response.results:  # type: ignore[attr-defined]
        # Every broker has a log dir: before version 3 it refuses like this.
        yield Right(*_READ_CLUSTER)
    needed = NEEDED.get(key)
    if needed is None:
        return
    operations = {requirement.resource_type: requirement.operation for requirement in reversed(needed)}
    for code, structs in _refusals(response, ()):
        resource_type = _TYPES[ErrorCode(code)]
        operation = operations.get(resource_type)
        if operation is not None:
            yield Right(operation, resource_type, _name(resource_type, (request, *structs)))


def _name(resource_type: ResourceType, structs: tuple[Struct, ...]) -> str:
    """Return the name that the innermost struct has for a resource of this type."""
    for struct in reversed(structs):
        for field in _NAMES[resource_type]:
            if isinstance(name := getattr(struct, field, None), str) and name:
                return f"User:{name}" if resource_type is ResourceType.USER else name
    return ""


def _refusals(struct: Struct, outer: tuple[Struct, ...]) -> Iterator[tuple[int, tuple[Struct, ...]]]:
    """Yield the codes that say "not allowed", each with the structs around it from the outermost on."""
    codes, arrays = _shape(type(struct))
    for field in codes:
        if (code := getattr(struct, field)) in _TYPES:
            yield code, (*outer, struct)
    for field in arrays:
        for element in getattr(struct, field) or ():
            yield from _refusals(element, (*outer, struct))


@cache
def _shape(of: type[Struct]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of a struct that hold error codes, and the arrays below which there are some."""
    # A created topic's settings are left out without DescribeConfigs, which creating topics does not need (KIP-525).
    codes = tuple(
        field.name
        for field in of.wire_fields
        if field.name.endswith("error_code") and field.name != "topic_config_error_code"
    )
    arrays = tuple(
        field.name
        for field in of.wire_fields
        if (element := _element(field.type)) is not None
        and element.__name__ not in _REFUSED_WITH_ITS_OWNER
        and any(_shape(element))
    )
    return codes, arrays


_REFUSED_WITH_ITS_OWNER = ("MetadataResponsePartition",)
"""A watch asks for thousands each second, and none is refused by itself: brokers leave its topic out, or refuse it."""


def _element(kind: Any) -> type[Struct] | None:
    element = kind.element if isinstance(kind, Array) else None
    return element if isinstance(element, type) and issubclass(element, Struct) else None
