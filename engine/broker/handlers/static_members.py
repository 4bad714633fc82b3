"""Static members (KIP-345) need an inter-broker protocol of 2.3: an older coordinator would lose their instance ids."""

from __future__ import annotations

from engine.broker.handlers.context import RequestContext
from engine.kafka.config.metadata_version import MetadataVersion


def are_static_members_refused(context: RequestContext, group_instance_id: str | None) -> bool:
    """Return whether the request names a static member that the cluster cannot have yet: UNSUPPORTED_VERSION."""
    if group_instance_id is None:
        return False
    return context.broker.config.inter_broker_protocol_version < MetadataVersion.IBP_2_3_IV0
