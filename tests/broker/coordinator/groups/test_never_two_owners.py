"""Clients and coordinators change at random: no partition ever has two owners in one generation."""

from __future__ import annotations

from group_world import World
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import SOAK

from engine.broker.coordinator.groups.group import GroupState
from engine.broker.coordinator.groups.member import JoinResult, SyncResult
from engine.common.errors import ErrorCode

PARTITIONS = 7
CLIENTS = 4

STEP = st.tuples(
    st.sampled_from(
        ["poll"] * 4
        + ["round"] * 12
        + ["leave", "vanish", "bounce", "wait", "wait long", "stores wait", "stores end", "move"]
    ),
    st.integers(0, CLIENTS - 1),
)


class Client:
    """Behaves as real consumers do: it joins, leads if asked, syncs, and sends heartbeats while it is polled."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.instance_id = f"i{number}" if number % 2 else None
        self.member_id = ""
        self.generation_id = -1
        self.joining: list[JoinResult] | None = None
        self.syncing: list[SyncResult] | None = None
        self.owned: tuple[int, bytes] | None = None
        """The generation, and the partitions the client believes it owns."""

    def poll(self) -> None:
        """Take the next step."""
        if self.joining is not None:
            if self.joining:
                self._joined(self.joining[0])
        elif self.syncing is not None:
            if self.syncing:
                self._synced(self.syncing[0])
        elif self.owned is None:
            self._join()
        else:
            error = self.world.heartbeat(self.member_id, self.generation_id, self.instance_id)
            if error is not ErrorCode.NONE:
                self._lose(error)

    def leave(self) -> None:
        """Close."""
        self.world.leave(self.member_id, self.instance_id)
        self.vanish()

    def vanish(self) -> None:
        """Die without a word. The next poll acts as a new process of the same consumer."""
        self.member_id = ""
        self.joining = self.syncing = self.owned = None

    def _join(self) -> None:
        self.joining = self.world.join(
            self.member_id,
            group_instance_id=self.instance_id,
            needs_known_member_id=self.instance_id is None,
            can_skip_assignment=True,
        )

    def _joined(self, result: JoinResult) -> None:
        self.joining = None
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            return
        if result.error is not ErrorCode.NONE:
            self._lose(result.error)
            return
        self.member_id, self.generation_id = result.member_id, result.generation_id
        assignments = {}
        if result.leader_id == result.member_id and not result.skip_assignment:
            ids = [member.member_id for member in result.members]
            assert result.member_id in ids
            assignments = {m: bytes(range(n, PARTITIONS, len(ids))) for n, m in enumerate(ids)}
        options = {} if self.instance_id is None else {"group_instance_id": self.instance_id}
        self.syncing = self.world.sync(self.member_id, self.generation_id, assignments, **options)

    def _synced(self, result: SyncResult) -> None:
        self.syncing = None
        if result.error is ErrorCode.NONE:
            self.owned = (self.generation_id, result.assignment)
        else:
            self._lose(result.error)

    def _lose(self, error: ErrorCode) -> None:
        self.owned = None
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""


def check(world: World, clients: list[Client]) -> None:
    """Check what must hold at any time."""
    owners: dict[tuple[int, int], int] = {}
    for number, client in enumerate(clients):
        if client.owned is not None:
            generation_id, partitions = client.owned
            for partition in partitions:
                other = owners.setdefault((generation_id, partition), number)
                assert other == number, f"{partition} of generation {generation_id}: {other} and {number}"
    group = world.group
    assert group.awaiting_join == sum(m.join_reply is not None for m in group.members.values())
    assert set(group.static_members.values()) <= set(group.members)
    assert (group.leader_id in group.members) == bool(group.members)
    assert group.pending_sync <= set(group.members)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        assert group.members


@settings(max_examples=60 * SOAK, deadline=None)
@given(st.lists(STEP, min_size=60, max_size=200))
def test_one_owner_per_partition_and_generation(steps: list[tuple[str, int]]) -> None:
    world = World()
    clients = [Client(world, number) for number in range(CLIENTS)]
    generations = [0]
    for step, number in steps:
        client = clients[number]
        if step == "poll":
            client.poll()
        elif step == "round":
            for each in clients:
                each.poll()
            world.wait(1_000)
        elif step == "leave":
            client.leave()
        elif step == "vanish":
            client.vanish()
        elif step == "bounce":
            client.vanish()
            client.poll()
        elif step == "move":
            world.move()
            # The new coordinator makes a generation again that was not stored.
            generations.clear()
        elif step == "stores wait":
            world.store_error = None
        elif step == "stores end":
            world.store_error = ErrorCode.NONE
            world.end_stores()
        else:
            world.wait(1_000 if step == "wait" else 12_000)
        check(world, clients)
        generations.append(world.group.generation_id)
    assert generations == sorted(generations)
    world.store_error = ErrorCode.NONE
    world.end_stores()
    for _ in range(400):
        for client in clients:
            client.poll()
        world.wait(500)
        check(world, clients)
    assert all(client.owned is not None for client in clients), "nobody waits for an answer that never comes"
    together = b"".join(client.owned[1] for client in clients if client.owned is not None)
    assert sorted(together) == list(range(PARTITIONS)), "left alone, the group settles and everything is read"
