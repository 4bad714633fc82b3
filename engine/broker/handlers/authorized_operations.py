"""What a client may do, as bits, for answers that include it on request (KIP-430).

Without an authorizer: everything.
"""

from __future__ import annotations

from typing import Final

NOT_REQUESTED: Final = -(2**31)
"""The value of the field in an answer to a client that did not ask."""

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = 3, 4, 5, 6, 7, 8, 9
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(_READ, _WRITE, _CREATE, _DESCRIBE, _DELETE, _ALTER, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
"""Every operation that exists for a topic."""

GROUP_OPERATIONS: Final = _bits(_READ, _DESCRIBE, _DELETE)
"""Every operation that exists for a group."""

CLUSTER_OPERATIONS: Final = _bits(
    _CREATE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE, _ALTER, _DESCRIBE
)
"""Every operation that exists for the cluster."""
