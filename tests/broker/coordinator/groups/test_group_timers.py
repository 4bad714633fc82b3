"""How long a group waits, which timers run meanwhile, and how a static member's return ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_world import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, World

from engine.broker.coordinator.groups.group import GroupState
from engine.broker.coordinator.groups.outbox import TimerKey, TimerKind
from engine.common.errors import ErrorCode

E = ErrorCode
S = GroupState
MakeWorld = Callable[..., World]


@pytest.fixture
def world() -> World:
    """A group that nobody has joined yet."""
    return World()


@pytest.fixture
def make_world() -> MakeWorld:
    """Return a world with other settings."""
    return World


def timers(world: World) -> list[tuple[TimerKind, str]]:
    """Return the running timers: of members' sessions, or the group's own."""
    names = [*world.group.members, *world.group.pending_members, "c-1", "c-2", "c-3", ""]
    keys = dict.fromkeys(TimerKey(kind, "g", name) for kind in TimerKind for name in names)
    running = [key for key in keys if world.wheel.deadline_ms(key) is not None]
    assert len(running) == len(world.wheel)
    return sorted(((key.kind, key.member_id) for key in running), key=lambda expiry: (expiry[0].name, expiry[1]))


@pytest.mark.parametrize("longest_ms", [INITIAL_DELAY_MS, INITIAL_DELAY_MS + 1, 2 * INITIAL_DELAY_MS])
def test_a_new_group_waits_exactly_as_long_as_a_rebalance_may_take(world: World, longest_ms: int) -> None:
    """A new member joins in each part of the wait. Timers are due at a multiple of 10 ms."""
    answers = world.join(rebalance_timeout_ms=longest_ms)
    joined_ms = [begin for begin in range(0, longest_ms, INITIAL_DELAY_MS) if begin + 20 < longest_ms]
    for begin_ms in joined_ms:
        world.wait(begin_ms + 10 - world.clock.monotonic_ms())
        world.join(rebalance_timeout_ms=longest_ms)
    due_ms = -(-longest_ms // 10) * 10
    world.wait(due_ms - 1 - world.clock.monotonic_ms())
    assert answers == []
    world.wait(1)
    assert (answers[0].error, answers[0].generation_id) == (E.NONE, 1)


def test_a_leader_is_replaced_at_the_end_of_the_first_wait(world: World) -> None:
    world.stable(1, group_instance_id="i1", session_timeout_ms=3 * REBALANCE_MS)
    second = world.join(group_instance_id="i2", session_timeout_ms=3 * REBALANCE_MS)
    world.wait(REBALANCE_MS)
    assert (second[0].error, second[0].leader_id) == (E.NONE, second[0].member_id)


def test_nobody_leads_a_group_that_was_stored_without_a_leader(world: World) -> None:
    (member,) = world.stable(1, group_instance_id="i1", session_timeout_ms=3 * REBALANCE_MS)
    waiting = world.join(member, group_instance_id="i1", protocols=(("range", b"new"),))
    assert waiting[0].generation_id == 2
    world.group.leader_id = None
    waiting = world.join(member, group_instance_id="i1", protocols=(("range", b"newer"),))
    assert (waiting, world.group.state) == ([], S.PREPARING_REBALANCE)
    assert (TimerKind.JOIN, "") in timers(world)


def test_static_members_are_waited_for_again_and_again(world: World) -> None:
    ids = [world.join(group_instance_id=name, session_timeout_ms=3 * REBALANCE_MS) for name in ("i1", "i2")]
    world.wait(2 * INITIAL_DELAY_MS)
    first, second = (answers[0].member_id for answers in ids)
    world.sync_all([first, second])
    world.machine._rebalance.prepare(world.group, "a test")
    world.carry_out()
    world.wait(REBALANCE_MS)
    waiting = world.join(second, group_instance_id="i2")
    world.wait(REBALANCE_MS)
    assert (waiting[0].generation_id, waiting[0].leader_id) == (2, second)
    assert list(world.group.members) == [first, second], "a static member stays until its session is over"


def test_a_stable_group_has_one_timer_for_each_member(world: World) -> None:
    ids = world.stable()
    assert timers(world) == [(TimerKind.SESSION, member_id) for member_id in ids]


def test_members_that_are_late_leave_no_timer(world: World) -> None:
    leader, late = world.stable(session_timeout_ms=3 * REBALANCE_MS)
    world.join(leader)
    world.wait(REBALANCE_MS)
    assert list(world.group.members) == [leader]
    assert timers(world) == [(TimerKind.SESSION, leader), (TimerKind.SYNC, "")]
    world.sync(leader, 2, {})
    assert late not in world.group.members


def test_members_that_never_ask_for_their_part_leave_no_timer(world: World) -> None:
    joins = [world.join(session_timeout_ms=3 * REBALANCE_MS) for _ in range(2)]
    world.wait(2 * INITIAL_DELAY_MS)
    leader = joins[0][0].member_id
    world.sync(leader, 1, {})
    world.wait(REBALANCE_MS)
    assert list(world.group.members) == [leader]
    assert timers(world) == [(TimerKind.JOIN, ""), (TimerKind.SESSION, leader)]


def test_a_group_that_empties_before_its_members_sync_leaves_no_timer(world: World) -> None:
    answer = world.join()
    world.wait(INITIAL_DELAY_MS)
    assert (TimerKind.SYNC, "") in timers(world)
    world.leave(answer[0].member_id)
    assert (world.group.state, timers(world)) == (S.EMPTY, [])


@pytest.mark.parametrize("ends", ["unload", "delete"])
def test_a_group_that_ends_before_its_members_sync_leaves_no_timer(world: World, ends: str) -> None:
    world.join()
    world.wait(INITIAL_DELAY_MS)
    getattr(world.machine, ends)(world.group)
    world.carry_out()
    assert timers(world) == []


def test_an_id_that_is_taken_back_leaves_no_timer(world: World) -> None:
    pending = world.join(needs_known_member_id=True)[0].member_id
    assert timers(world) == [(TimerKind.SESSION, pending)]
    world.leave(pending)
    assert timers(world) == []


def test_a_session_begins_with_the_generation(world: World) -> None:
    answer = world.join()
    world.wait(INITIAL_DELAY_MS)
    assert answer[0].generation_id == 1
    world.wait(SESSION_MS - 1)
    assert list(world.group.members) == [answer[0].member_id]
    world.wait(1)
    assert world.group.members == {}


def test_a_session_begins_again_when_the_part_is_handed_out(world: World) -> None:
    joins = [world.join() for _ in range(2)]
    world.wait(2 * INITIAL_DELAY_MS)
    leader, follower = (answers[0].member_id for answers in joins)
    waiting = world.sync(follower, 1)
    for _ in range(2):
        world.wait(SESSION_MS - 1)
        world.heartbeat(leader, 1)
    assert waiting == [], "who waits for the leader needs no heartbeat"
    world.sync(leader, 1, {follower: b"part"})
    assert waiting[0].assignment == b"part"
    world.wait(SESSION_MS - 1)
    world.heartbeat(leader, 1)
    assert follower in world.group.members
    world.wait(10)
    assert follower not in world.group.members


def test_who_leaves_while_it_waits_for_its_part_is_answered(world: World) -> None:
    joins = [world.join() for _ in range(2)]
    world.wait(2 * INITIAL_DELAY_MS)
    follower = joins[1][0].member_id
    waiting = world.sync(follower, 1)
    world.leave(follower)
    assert [result.error for result in waiting] == [E.UNKNOWN_MEMBER_ID]


def test_a_timer_that_comes_too_late_changes_nothing(world: World) -> None:
    world.stable()
    for kind in (TimerKind.SYNC, TimerKind.JOIN):
        world.machine.timer_is_due(world.group, TimerKey(kind, "g"))
        world.carry_out()
    assert (world.group.state, world.group.generation_id) == (S.STABLE, 1)


def test_an_id_that_finds_no_room_leaves_no_timer(make_world: MakeWorld) -> None:
    world = make_world(group_max_size=1)
    pending = world.join(needs_known_member_id=True)[0].member_id
    (member,) = world.stable(1)
    assert world.join(pending)[0].error is E.GROUP_MAX_SIZE_REACHED
    assert (timers(world), world.group.pending_members) == ([(TimerKind.SESSION, member)], set())


def test_a_static_member_that_comes_back_has_one_session_of_its_own(world: World) -> None:
    world.stable(1, group_instance_id="i")
    new = world.join(group_instance_id="i")[0].member_id
    assert timers(world) == [(TimerKind.SESSION, new)]
    world.wait(SESSION_MS)
    assert world.group.members == {}


def test_a_static_members_return_is_answered_by_the_rebalance_that_began_meanwhile(world: World) -> None:
    world.stable(1, group_instance_id="i")
    world.store_error = None
    returning = world.join(group_instance_id="i")
    newcomer = world.join()
    world.end_stores()
    assert (world.group.state, returning) == (S.COMPLETING_REBALANCE, returning)
    assert [answer.generation_id for answer in (*returning, *newcomer)] == [2, 2]


def test_a_static_members_return_that_is_stored_during_a_rebalance_is_not_answered_yet(world: World) -> None:
    ids = [world.join(group_instance_id=name) for name in ("i", "j")]
    world.wait(2 * INITIAL_DELAY_MS)
    world.sync_all([answers[0].member_id for answers in ids])
    world.store_error = None
    returning = world.join(group_instance_id="i")
    world.join()
    world.end_stores()
    assert (world.group.state, returning) == (S.PREPARING_REBALANCE, []), "the other static member is waited for"


def test_what_a_static_member_changed_is_undone_when_its_return_cannot_be_stored(world: World) -> None:
    (old,) = world.stable(1, group_instance_id="i")
    before = world.group.members[old]
    was = before.protocols, before.rebalance_timeout_ms, before.session_timeout_ms
    world.store_error = E.NOT_COORDINATOR
    changed = {"protocols": (("range", b"new"), ("rr", b"x")), "rebalance_timeout_ms": 1, "session_timeout_ms": 2}
    assert world.join(group_instance_id="i", **changed)[0].error is E.NOT_COORDINATOR
    now = world.group.members[old]
    assert (now.protocols, now.rebalance_timeout_ms, now.session_timeout_ms) == was
    assert (world.group.awaiting_join, timers(world)) == (0, [(TimerKind.SESSION, old)])
    world.wait(SESSION_MS)
    assert world.group.members == {}
