"""Operations and resource types of access control, with Kafka's codes and spelling."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple


class AclOperation(IntEnum):
    """What a principal may or may not do. The value is the code in requests, and the bit of KIP-430's fields."""

    ALL = 2
    """In rules only: every operation."""
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14

    @property
    def spelling(self) -> str:
        """How access lists and Kafka's documentation write it, such as ``ClusterAction``."""
        return self.name.title().replace("_", "")

    @property
    def word(self) -> str:
        """How people write it: ``describe-configs``."""
        return self.name.lower().replace("_", "-")


class ResourceType(Enum):
    """What an access list is for. The value is the folder's name; notifications use the enum name."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"
    DELEGATION_TOKEN = "DelegationToken"
    USER = "User"

    @property
    def word(self) -> str:
        """How people write it: ``transactional-id``."""
        return self.name.lower().replace("_", "-")


class Requirement(NamedTuple):
    """A right that a request needs: an operation on a resource of a type."""

    operation: AclOperation
    resource_type: ResourceType

    @classmethod
    def of(cls, text: str) -> Requirement:
        """Read a requirement as Kafka's documentation writes it, such as ``Read Topic``.

        Raises:
            ValueError: there is no such operation or type of resources.
        """
        spelling, _, resource_type = text.partition(" ")
        operation = next((each for each in AclOperation if each.spelling == spelling), None)
        if operation is None:
            raise ValueError(f"{spelling!r} is not an operation of access rules")
        return cls(operation, ResourceType(resource_type))
