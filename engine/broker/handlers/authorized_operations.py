"""What a client may do, as bits, for answers that include it on request (KIP-430).

Without an authorizer: everything.
"""

from __future__ import annotations

from typing import Final

from engine.common.acl import AclOperation

NOT_REQUESTED: Final = -(2**31)
"""The value of the field in an answer to a client that did not ask."""


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
"""Every operation that exists for a topic."""

GROUP_OPERATIONS: Final = _bits(AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE)
"""Every operation that exists for a group."""

CLUSTER_OPERATIONS: Final = _bits(
    AclOperation.CREATE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
"""Every operation that exists for the cluster."""
