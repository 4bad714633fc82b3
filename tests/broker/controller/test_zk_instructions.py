"""What the core gets for tools' requests in znodes: nothing, the request, or the reason why it cannot be decoded."""

from __future__ import annotations

import pytest
from event_loop import in_event_loop
from fake_zookeeper import tp

from engine.broker.controller import instructions as do
from engine.broker.controller.context import ControllerEpoch
from engine.broker.controller.instructions import AdminRequest, Instruction
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.zk_instructions import ZkInstructions
from engine.kafka.zk.admin_nodes import PreferredReplicaElectionZNode, ReassignPartitionsZNode
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import ControllerMoved
from engine.kafka.zk.kafka_client import KafkaZkClient


@pytest.mark.parametrize(
    ("read", "path", "data", "values", "nothing"),
    [
        (
            do.ReadReassignments(),
            ReassignPartitionsZNode.path,
            ReassignPartitionsZNode.encode({tp("t-0"): (1, 2)}),
            {tp("t-0"): (1, 2)},
            {},
        ),
        (
            do.ReadPreferredElection(),
            PreferredReplicaElectionZNode.path,
            PreferredReplicaElectionZNode.encode([tp("t-0")]),
            (tp("t-0"),),
            (),
        ),
    ],
)
@in_event_loop
async def test_what_a_tool_asks_for(
    zk_chroot: str, read: Instruction[object], path: str, data: bytes, values: object, nothing: object
) -> None:
    async with await ZkClient.connect(zk_chroot, session_timeout_ms=6_000) as client:
        instructions = ZkInstructions(KafkaZkClient(client), ControllerOptions(1), ControllerEpoch(1, 0), lambda: False)
        await client.ensure_path("/admin")
        assert await instructions.perform(read) is None
        await client.create(path, data)
        assert await instructions.perform(read) == AdminRequest(values)
        await client.set(path, b"{")
        answer = await instructions.perform(read)
        assert answer.values == nothing
        assert path in answer.malformed
        await client.close()
        with pytest.raises(ControllerMoved):
            await instructions.perform(read)
