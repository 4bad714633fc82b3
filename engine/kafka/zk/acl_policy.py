"""Which access list Kafka gives each znode when ``zookeeper.set.acl`` is on. Sets nothing."""

from __future__ import annotations

from engine.kafka.zk.operations import CREATOR_ACL, OPEN_ACL, PROTECTED_ACL, Acl

_SENSITIVE_ROOTS = ("/config/users", "/config/brokers", "/delegation_token/tokens")
_OPEN_PATH = "/consumers"
SECURE_ROOTS = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/migration",
    "/feature",
)
"""Below these everything is protected (``ZkData.SecureRootPaths`` and ``ZkAclStore.securePaths`` of Kafka 3.9)."""


class AclPolicy:
    """Access lists by path. Without security everybody may do everything, which is Kafka's default."""

    def __init__(self, is_secure: bool = False) -> None:
        self.is_secure = is_secure

    def acl(self, path: str) -> tuple[Acl, ...]:
        """Return the access list for a new znode: its creator may do everything, and all may read it unless it holds
        secrets.

        Only ``/consumers`` is open to all, because old consumers write below it.
        """
        if not self.is_secure or path == _OPEN_PATH:
            return OPEN_ACL
        if path.startswith(_SENSITIVE_ROOTS):
            return CREATOR_ACL
        return PROTECTED_ACL
