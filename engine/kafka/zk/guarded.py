"""The controller's writes. Each is in a multi that checks ``/controller_epoch``: a deposed controller writes nothing.

Each znode has its own multi, and all multis of a call are in flight at once: one stale version does not fail the
others. Source: KAFKA-6082 (Kafka 2.2).
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import ControllerMoved, MultiFailed, ZooKeeperError
from engine.kafka.zk.operations import Check, Operation, OperationResult
from engine.kafka.zk.znodes.controller_znodes import ControllerEpochZNode

WriteOutcome = OperationResult | ZooKeeperError
"""The result of a successful write, or the reason for its refusal."""


async def write_guarded(
    client: ZkClient, operations: Iterable[Operation], epoch_zk_version: int | None
) -> list[WriteOutcome]:
    """Do each write only if the controller epoch's znode has the given version.

    Args:
        epoch_zk_version: version of ``/controller_epoch`` from the controller's election; None does not check.

    Returns:
        Each write's result, or the error of that znode alone.

    Raises:
        ControllerMoved: the check failed for at least one write; others may have succeeded before.
        SessionLost: the session ended meanwhile.
    """
    if epoch_zk_version is None:
        return await client.write_many(operations)
    guard = Check(ControllerEpochZNode.path, epoch_zk_version)
    outcomes = await client.multi_many([guard, operation] for operation in operations)
    results: list[WriteOutcome] = []
    for outcome in outcomes:
        if isinstance(outcome, MultiFailed):
            if outcome.index == 0:
                raise ControllerMoved(f"/controller_epoch no longer has version {epoch_zk_version}: there is a new one")
            results.append(outcome.error)
        elif isinstance(outcome, ZooKeeperError):
            results.append(outcome)
        else:
            results.append(outcome[-1])
    return results


def raise_first(outcomes: Iterable[WriteOutcome], *tolerated: type[ZooKeeperError]) -> None:
    """Raise the first error that is not of a tolerated type."""
    for outcome in outcomes:
        if isinstance(outcome, ZooKeeperError) and not isinstance(outcome, tolerated):
            raise outcome
