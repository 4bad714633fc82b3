"""What a command does if it would change something on which a running plan of another operator relies."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from cli.framework.invocation import Invocation

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster

BesidePlan = Annotated[
    bool, typer.Option("--force", help="Do it even while another operator carries out a plan that relies on it.")
]


async def minds_plan(
    invocation: Invocation, cluster: Cluster, topics: Collection[str] | None, *, is_forced: bool
) -> bool:
    """Name the operator whose plan relies on these topics (None: on any); return whether to ask because of that.

    Raises:
        LockHeld: there is one, the session is not interactive, and the user has not forced it.
    """
    from engine.admin.reassignment.lock import plan_in_the_way
    from engine.admin.reassignment.lock_holder import LockHeld
    from engine.common.acl import AclOperation, Requirement, ResourceType

    holder = await plan_in_the_way(cluster, topics)
    # A principal that may not see the lock cannot know. The end of the command says so.
    invocation.rights = (*invocation.rights, Requirement(AclOperation.DESCRIBE, ResourceType.GROUP))
    if holder is None:
        return False
    if not (is_forced or invocation.is_dry_run or invocation.will_ask):
        raise LockHeld(holder, may_be_forced=True)
    invocation.talk.warn(f"another operator is carrying out a plan that relies on this: {holder}: {holder.what}")
    return not is_forced
