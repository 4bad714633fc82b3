"""Reassignments through ``/admin/reassign_partitions``, for clusters of which klamm knows only ZooKeeper.

Tools used it before Kafka 2.4 (KIP-455), and every controller up to 3.9 still carries it out. The controller does not
check its content (3.9 accepts a dead broker and waits forever), so the writer must. It can only start reassignments,
one batch at a time: a controller ignores changes of the znode.
"""

from __future__ import annotations

from engine.admin.cluster.errors import AdminError, BadRequest, FailureKind, Unreachable
from engine.admin.cluster.remedies import FIND_BROKERS, USE_BROKERS, Operation, Phrase
from engine.admin.reassignment.moves import Refusal, RunningReassignments, Targets
from engine.common.model import TopicPartition
from engine.kafka.zk.admin_nodes import ReassignPartitionsZNode
from engine.kafka.zk.brokers import BrokerRegistration
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.configs import ConfigType
from engine.kafka.zk.errors import NodeExists
from engine.kafka.zk.kafka_client import KafkaZkClient

ZNODE_BYTES_MAX = 1_000_000
"""ZooKeeper accepts 1 MiB including its own overhead (jute.maxbuffer)."""

_REGISTERED_SINCE_2_7 = 5
"""The version of a broker's registration."""


class ReassignmentInProgress(AdminError):
    """The cluster is carrying out another reassignment."""

    kind = FailureKind.REFUSED


class ZnodeReassignments:
    """Reads the znodes of topics and brokers, and writes the one that starts reassignments."""

    may_be_late = False
    is_live = True
    is_znode = True

    def __init__(self, zk: ZkClient) -> None:
        self._kafka = KafkaZkClient(zk)

    async def running(self) -> RunningReassignments:
        """Return what topics' znodes say is under way, and what is still in the tools' znode."""
        topics = await self._kafka.topics.get_topic_assignments(await self._kafka.topics.get_all_topics())
        running = {
            TopicPartition(topic, partition): assignment
            for topic, topic_assignment in topics.items()
            for partition, assignment in topic_assignment.assignment.items()
            if assignment.is_being_reassigned
        }
        return RunningReassignments(running, await self._kafka.admin.get_reassignments() or {})

    async def configured_brokers(self) -> set[int]:
        names = await self._kafka.configs.get_entity_names(ConfigType.BROKER)
        return {int(name) for name in names if name.isdigit()}

    async def orders_wait(self) -> bool:
        """Controllers before Kafka 2.4 wait; the brokers' registrations identify 2.7 and later."""
        registrations = (await self._kafka.brokers.read_broker_registrations()).values()
        return not all(
            isinstance(broker, BrokerRegistration) and broker.json_version >= _REGISTERED_SINCE_2_7
            for broker in registrations
        )

    async def check(self, targets: Targets) -> None:
        check_znode(targets)

    async def alter(self, targets: Targets) -> list[Refusal]:
        """The controller never reports what it does not carry out, so there are no refusals."""
        await start_by_znode(self._kafka, targets)
        return []


def check_znode(targets: Targets) -> None:
    """Raise BadRequest if the znode cannot hold what is wanted."""
    if any(replicas is None for replicas in targets.values()):
        raise BadRequest("a reassignment cannot be cancelled through ZooKeeper", hint=FIND_BROKERS)
    size = len(ReassignPartitionsZNode.encode({n: r for n, r in targets.items() if r is not None}))
    if size > ZNODE_BYTES_MAX:
        hint = Phrase("split the file, or ", USE_BROKERS)
        raise BadRequest(f"too many partitions for ZooKeeper: {size} bytes of {ZNODE_BYTES_MAX}", hint=hint)


async def start_by_znode(kafka: KafkaZkClient, targets: Targets) -> None:
    """Ask for reassignments.

    Raises:
        ReassignmentInProgress: the znode exists already.
        Unreachable: there is no controller.
    """
    if await kafka.controller.get_controller_id() is None:
        hint = Phrase("see who is alive: ", Operation.LIST_BROKERS)
        raise Unreachable("there is no controller to move anything", hint=hint)
    try:
        await kafka.admin.create_reassignments({name: r for name, r in targets.items() if r is not None})
    except NodeExists as error:
        hint = Phrase("wait until it is done, then run this again; check with: ", Operation.LIST_REASSIGNMENTS)
        raise ReassignmentInProgress("another reassignment is being carried out", hint=hint) from error
