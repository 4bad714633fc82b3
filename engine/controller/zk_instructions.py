"""Carries out the core's reads and writes of ZooKeeper. Decides nothing.

A failed epoch check and a lost session are the same to the core: this broker is not the controller any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from engine.common.errors import CoordinationError
from engine.controller import instructions as do
from engine.controller.context import ControllerEpoch
from engine.controller.instructions import AdminRequest, Instruction
from engine.controller.logs import controller_log
from engine.controller.options import ControllerOptions
from engine.zk.errors import ControllerMoved, SessionLost, ZnodeFormatError
from engine.zk.kafka_client import KafkaZkClient
from engine.zk.znodes.cluster_znodes import FeatureStatus, FinalizedFeatures

T = TypeVar("T")

_UNCLEAN = "unclean.leader.election.enable"


class ZkInstructions:
    """The ZooKeeper half of the loop, for one term as controller."""

    def __init__(
        self,
        zk: KafkaZkClient,
        options: ControllerOptions,
        epoch: ControllerEpoch,
        unclean_by_default: Callable[[], bool],
    ) -> None:
        self._zk = zk
        self._options = options
        self._epoch = epoch
        self._unclean_by_default = unclean_by_default
        self._log = controller_log(options.controller_id)

    @property
    def _guard(self) -> int:
        return self._epoch.zk_version

    async def perform(self, instruction: Instruction[Any]) -> Any:
        """Carry out one instruction and return its result.

        Raises:
            ControllerMoved: the epoch check failed, or the session ended.
            CoordinationError: ZooKeeper refused it for another reason.
        """
        try:
            return await self._read(instruction)
        except SessionLost as error:
            raise ControllerMoved(str(error)) from error

    async def _read(self, instruction: Instruction[Any]) -> Any:
        match instruction:
            case do.ReadBrokers():
                return await self._zk.get_all_brokers_with_epochs()
            case do.ReadBroker(broker_id):
                return await self._zk.get_broker(broker_id)
            case do.ReadTopics():
                return await self._zk.get_all_topics()
            case do.ReadTopicAssignments(topics):
                return await self._zk.get_topic_assignments(topics)
            case do.ReadPartitionIds(topic):
                return await self._zk.get_partition_ids(topic)
            case do.ReadPartitionStates(partitions):
                return await self._zk.get_partition_states(partitions)
            case do.ReadTopicDeletions():
                return await self._zk.get_topic_deletions()
            case do.ReadReassignments():
                return await _admin_request(self._zk.get_reassignments(), {})
            case do.ReadPreferredElection():
                return await _admin_request(self._zk.get_preferred_election(), ())
            case do.ReadIsrChangeNotifications():
                return await self._zk.get_isr_change_notifications()
            case do.ReadLogDirEvents():
                return await self._zk.get_log_dir_events()
            case do.ReadUncleanElectionEnabled(topics):
                return await self._read_unclean_election_enabled(topics)
            case _:
                return await self._write(instruction)

    async def _write(self, instruction: Instruction[Any]) -> Any:
        match instruction:
            case do.CreatePartitionStates(states):
                return await self._zk.create_partition_states(states, self._guard)
            case do.UpdateLeaderAndIsr(states):
                return await self._zk.update_partition_states(states, self._epoch.controller_epoch, self._guard)
            case do.SetTopicAssignments(assignments):
                outcomes = await self._zk.set_topic_assignments(assignments, self._guard)
                return [topic for topic, outcome in outcomes.items() if not isinstance(outcome, int)]
            case do.DeleteTopicZNodes(topic):
                await self._zk.delete_topic_znode(topic, self._guard)
                await self._zk.delete_topic_configs((topic,), self._guard)
                await self._zk.delete_topic_deletions((topic,), self._guard)
            case do.DeleteTopicDeletions(topics):
                await self._zk.delete_topic_deletions(topics, self._guard)
            case do.SetReassignments(reassignments):
                await self._zk.set_reassignments(reassignments, self._guard)
            case do.DeletePreferredElection():
                await self._zk.delete_preferred_election(self._guard)
            case do.DeleteIsrChangeNotifications(names):
                await self._zk.delete_isr_change_notifications(names, self._guard)
            case do.DeleteLogDirEvents(names):
                await self._zk.delete_log_dir_events(names, self._guard)
            case do.SetUpFeatures():
                await self._set_up_features()
            case do.AllocateProducerIdBlock(broker_id):
                return await self._zk.allocate_producer_id_block(broker_id)
            case _:
                raise TypeError(f"no instruction for ZooKeeper: {instruction}")
        return None

    async def _read_unclean_election_enabled(self, topics: tuple[str, ...]) -> dict[str, bool | CoordinationError]:
        default = self._unclean_by_default()
        enabled: dict[str, bool | CoordinationError] = {}
        for topic, overrides in (await self._zk.get_topic_configs(topics)).items():
            if isinstance(overrides, CoordinationError):
                enabled[topic] = overrides
            else:
                text = overrides.get(_UNCLEAN)
                enabled[topic] = default if text is None else text.strip().lower() == "true"
        return enabled

    async def _set_up_features(self) -> None:
        before = await self._zk.get_features()
        enabled = self._options.is_feature_versioning_supported
        status = FeatureStatus.ENABLED if enabled else FeatureStatus.DISABLED
        await self._zk.set_up_features(status, self._options.feature_znode_version)
        after = await self._zk.get_features()
        if after is not None and after != before:
            verb = "Creating" if before is None else "Updating"
            self._log.info(f"{verb} FeatureZNode at path: /feature with contents: {_features_text(after)}")


async def _admin_request(reading: Awaitable[T | None], nothing: T) -> AdminRequest[T] | None:
    """Return what somebody asks for through a znode; None where it is not there."""
    try:
        found = await reading
    except ZnodeFormatError as error:
        return AdminRequest(nothing, str(error))
    return None if found is None else AdminRequest(found)


def _features_text(features: FinalizedFeatures) -> str:
    levels = ", ".join(f"{name} -> {level}" for name, level in features.features.items())
    return f"FeatureZNode({features.json_version},{features.status.name.capitalize()},Map({levels}))"
