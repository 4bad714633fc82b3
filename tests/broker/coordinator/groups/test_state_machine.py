"""How requests, time and failed writes change a group, by the rules of Kafka 3.9."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_world import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, World

from engine.broker.coordinator.groups.commit_form import Committer
from engine.broker.coordinator.groups.group import VALID_PREVIOUS_STATES, Group, GroupState
from engine.broker.coordinator.groups.outbox import TimerKey, TimerKind
from engine.broker.coordinator.groups.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
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


# -- joining


def test_a_new_group_waits_for_further_members(world: World) -> None:
    first = world.join()
    world.wait(INITIAL_DELAY_MS - 100)
    second = world.join()
    world.wait(200)
    assert (first, second) == ([], []), "the second one prolongs the wait"
    world.wait(INITIAL_DELAY_MS)
    leader, other = first[0], second[0]
    assert (leader.error, leader.generation_id, leader.protocol_name) == (E.NONE, 1, "range")
    assert [m.member_id for m in leader.members] == [leader.member_id, other.member_id]
    assert (other.leader_id, other.members) == (leader.member_id, ())
    assert world.group.state is S.COMPLETING_REBALANCE


def test_the_initial_wait_ends_with_the_rebalance_timeout(world: World) -> None:
    answers = [world.join()]
    waited_ms = 0
    while not answers[0]:
        assert waited_ms <= REBALANCE_MS + INITIAL_DELAY_MS
        world.wait(1_000)
        waited_ms += 1_000
        answers.append(world.join())
    assert waited_ms >= REBALANCE_MS - INITIAL_DELAY_MS


def test_a_new_member_gets_its_id_first(world: World) -> None:
    answer = world.join(needs_known_member_id=True)[0]
    assert (answer.error, answer.member_id) == (E.MEMBER_ID_REQUIRED, "c-1")
    assert world.group.members == {}
    world.join(answer.member_id)
    assert list(world.group.members) == [answer.member_id]


def test_an_id_that_is_not_used_is_taken_back(world: World) -> None:
    ids = world.stable(1)
    pending = world.join(needs_known_member_id=True)[0].member_id
    rejoined = world.join(ids[0])
    assert rejoined == [], "the pending member is waited for"
    world.wait(SESSION_MS)
    assert rejoined[0].generation_id == 2
    assert world.join(pending)[0].error is E.UNKNOWN_MEMBER_ID


def test_the_protocol_that_most_members_like_best(world: World) -> None:
    first = world.join(protocols=(("range", b""), ("rr", b""), ("own", b"")))
    world.join(protocols=(("rr", b""), ("range", b"")))
    world.join(protocols=(("rr", b""), ("range", b"")))
    world.wait(2 * INITIAL_DELAY_MS)
    assert first[0].protocol_name == "rr"
    assert world.join(protocols=(("own", b""),))[0].error is E.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect")[0].error is E.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("options", [{"protocols": ()}, {"protocol_type": ""}])
def test_an_empty_group_wants_a_protocol(world: World, options: dict[str, object]) -> None:
    assert world.join(**options)[0].error is E.INCONSISTENT_GROUP_PROTOCOL


def test_whoever_comes_after_all_have_left_agrees_with_nobody(world: World) -> None:
    left = world.join(world.join(needs_known_member_id=True, protocols=(("range", b""),))[0].member_id)
    assert world.leave("c-1") is E.NONE
    assert left[0].error is E.UNKNOWN_MEMBER_ID
    assert (world.group.state, len(world.group.members)) == (S.PREPARING_REBALANCE, 0), "the initial delay goes on"
    assert world.join(protocols=())[0].error is E.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect")[0].error is E.INCONSISTENT_GROUP_PROTOCOL
    answer = world.join(protocols=(("sticky", b""),))
    world.wait(2 * INITIAL_DELAY_MS)
    assert (answer[0].error, answer[0].protocol_name) == (E.NONE, "sticky")


def test_unknown_member(world: World) -> None:
    assert world.join("stranger")[0].error is E.UNKNOWN_MEMBER_ID
    world.stable()
    assert world.join("stranger")[0].error is E.UNKNOWN_MEMBER_ID
    assert world.heartbeat("stranger", 1) is E.UNKNOWN_MEMBER_ID
    assert world.sync("stranger", 1)[0].error is E.UNKNOWN_MEMBER_ID
    assert world.leave("stranger") is E.UNKNOWN_MEMBER_ID


def test_group_max_size(make_world: MakeWorld) -> None:
    world = make_world(group_max_size=2)
    ids = world.stable(2)
    refused = world.join()[0]
    assert (refused.error, refused.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")
    assert list(world.group.members) == ids


def test_session_timeout_bounds(make_world: MakeWorld) -> None:
    machine = make_world(group_min_session_timeout_ms=5, group_max_session_timeout_ms=7).machine
    assert [machine.is_session_timeout_valid(ms) for ms in (4, 5, 7, 8)] == [False, True, True, False]


def test_who_joins_again_without_news_hears_the_present_generation(world: World) -> None:
    leader, follower = world.stable()
    assert world.join(follower)[0].generation_id == 1
    assert world.group.state is S.STABLE
    assert world.join(leader) == [], "the leader asks for a rebalance"
    assert world.group.state is S.PREPARING_REBALANCE


def test_changed_metadata_rebalances(world: World) -> None:
    leader, follower = world.stable()
    waiting = world.join(follower, protocols=(("range", b"other"),))
    assert world.heartbeat(leader, 1) is E.REBALANCE_IN_PROGRESS
    answer = world.join(leader)[0]
    assert waiting[0].generation_id == answer.generation_id == 2
    assert answer.members[1].metadata == b"other"


def test_who_does_not_join_again_is_removed(world: World) -> None:
    leader, follower = world.stable()
    waiting = world.join(follower, protocols=(("range", b"other"),))
    for _ in range(REBALANCE_MS // 1_000):
        world.heartbeat(leader, 1)
        world.wait(1_000)
    assert waiting[0].leader_id == follower, "somebody who is there leads"
    assert list(world.group.members) == [follower]


# -- assignments


def test_everybody_gets_its_part_once_it_is_stored(world: World) -> None:
    joins = [world.join() for _ in range(3)]
    world.wait(2 * INITIAL_DELAY_MS)
    leader, second, third = (answers[0].member_id for answers in joins)
    world.store_error = None
    waiting = world.sync(second, 1)
    led = world.sync(leader, 1, {leader: b"0", second: b"1"})
    assert (waiting, led) == ([], [])
    world.end_stores()
    assert (waiting[0].assignment, led[0].assignment) == (b"1", b"0")
    assert world.group.state is S.STABLE
    assert world.sync(third, 1)[0].assignment == b"", "the leader left it out"


def test_an_assignment_that_cannot_be_stored_begins_anew(world: World) -> None:
    answer = world.join()
    world.wait(INITIAL_DELAY_MS)
    world.store_error = E.NOT_COORDINATOR
    led = world.sync(answer[0].member_id, 1, {})
    assert led[0].error is E.NOT_COORDINATOR
    assert world.group.state is S.PREPARING_REBALANCE


def test_an_assignment_of_an_older_generation_counts_no_more(world: World) -> None:
    answer = world.join()
    world.wait(INITIAL_DELAY_MS)
    leader = answer[0].member_id
    world.store_error = None
    waiting = world.sync(leader, 1, {leader: b"old"})
    world.join()
    assert waiting[0].error is E.REBALANCE_IN_PROGRESS
    world.end_stores()
    assert world.group.state is S.PREPARING_REBALANCE
    assert world.group.members[leader].assignment == b""


def test_sync_refusals(world: World) -> None:
    leader, follower = world.stable()
    assert world.sync(follower, 0)[0].error is E.ILLEGAL_GENERATION
    assert world.sync(follower, 1, protocol_type="connect")[0].error is E.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(follower, 1, protocol_name="rr")[0].error is E.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(follower, 1, protocol_type="consumer", protocol_name="range")[0].assignment == follower.encode()
    world.join(leader)
    assert world.sync(follower, 1)[0].error is E.REBALANCE_IN_PROGRESS


def test_who_never_asks_for_its_part_is_removed(world: World) -> None:
    joins = [world.join() for _ in range(2)]
    world.wait(2 * INITIAL_DELAY_MS)
    leader, silent = (answers[0].member_id for answers in joins)
    world.sync(leader, 1, {})
    for _ in range(REBALANCE_MS // 1_000 + 1):
        world.wait(1_000)
        for member in (leader, silent):
            world.heartbeat(member, 1)
    assert silent not in world.group.members
    assert world.group.state is S.PREPARING_REBALANCE


# -- life of members


def test_heartbeats_keep_a_member_and_their_absence_removes_it(world: World) -> None:
    alive, dead = world.stable()
    for _ in range(3):
        world.wait(SESSION_MS - 1_000)
        assert world.heartbeat(alive, 1) in (E.NONE, E.REBALANCE_IN_PROGRESS)
    assert dead not in world.group.members
    assert world.heartbeat(dead, 1) is E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(alive, 0) is E.ILLEGAL_GENERATION


def test_who_waits_for_the_group_needs_no_heartbeat(world: World) -> None:
    leader, follower = world.stable()
    waiting = world.join(leader)
    for _ in range(2):
        world.wait(SESSION_MS - 500)
        world.heartbeat(follower, 1)
    assert leader in world.group.members
    assert waiting == []


def test_a_new_member_whose_client_is_gone_does_not_wait_for_ever(world: World) -> None:
    (static,) = world.stable(1, group_instance_id="i", session_timeout_ms=1_800_000, rebalance_timeout_ms=1_800_000)
    gone = world.join()
    world.wait(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert gone[0].error is E.UNKNOWN_MEMBER_ID
    assert list(world.group.members) == [static]


def test_the_last_one_to_leave_empties_the_group(world: World) -> None:
    first, second = world.stable()
    assert world.leave(first) is E.NONE
    assert world.group.leader_id == second
    assert world.leave(second) is E.NONE
    assert (world.group.state, world.group.generation_id, world.group.protocol_name) == (S.EMPTY, 2, None)
    assert len(world.wheel) == 0
    assert world.stores[-1].assignments == {}


def test_leaving_frees_those_who_wait(world: World) -> None:
    first, second = world.stable()
    waiting = world.join(first)
    world.leave(second)
    assert waiting[0].generation_id == 2


def test_a_pending_member_may_leave(world: World) -> None:
    pending = world.join(needs_known_member_id=True)[0].member_id
    assert world.leave(pending) is E.NONE
    assert world.group.pending_members == set()


# -- static members


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_static_member_comes_back_without_rebalance(world: World, can_skip: bool) -> None:
    (old,) = world.stable(1, group_instance_id="i")
    answer = world.join(group_instance_id="i", can_skip_assignment=can_skip)[0]
    assert (answer.error, answer.generation_id, world.group.state) == (E.NONE, 1, S.STABLE)
    assert answer.member_id != old
    if can_skip:
        assert (answer.leader_id, answer.skip_assignment) == (answer.member_id, True)
    else:
        assert (answer.leader_id, answer.skip_assignment, answer.members) == (old, False, ())
    assert world.sync(answer.member_id, 1)[0].assignment == old.encode()
    assert world.heartbeat(old, 1, "i") is E.FENCED_INSTANCE_ID
    assert world.sync(old, 1, group_instance_id="i")[0].error is E.FENCED_INSTANCE_ID
    assert world.join(old, group_instance_id="i")[0].error is E.FENCED_INSTANCE_ID
    assert world.leave(old, "i") is E.FENCED_INSTANCE_ID
    assert world.heartbeat(old, 1, "nobody") is E.UNKNOWN_MEMBER_ID


def test_a_static_members_return_that_cannot_be_stored_is_undone(world: World) -> None:
    (old,) = world.stable(1, group_instance_id="i")
    world.store_error = E.NOT_COORDINATOR
    assert world.join(group_instance_id="i")[0].error is E.NOT_COORDINATOR
    assert world.group.static_members == {"i": old}
    assert world.heartbeat(old, 1, "i") is E.NONE


def test_a_static_member_that_comes_back_during_a_rebalance_begins_it_anew(world: World) -> None:
    waiting = world.join(group_instance_id="i")
    world.wait(INITIAL_DELAY_MS)
    old = waiting[0].member_id
    world.store_error = None
    synced = world.sync(old, 1, {})
    answer = world.join(group_instance_id="i")
    assert synced[0].error is E.FENCED_INSTANCE_ID
    assert answer[0].generation_id == 2
    assert answer[0].member_id != old


def test_an_operator_removes_a_static_member_by_its_instance_id(world: World) -> None:
    world.stable(1, group_instance_id="i")
    assert world.leave("", "i") is E.NONE
    assert world.leave("", "i") is E.UNKNOWN_MEMBER_ID
    assert world.leave("") is E.UNKNOWN_MEMBER_ID


# -- commits


def test_who_may_commit(world: World) -> None:
    def check(member_id: str, generation_id: int, *, transactional: bool = False) -> ErrorCode:
        return world.machine.check_commit(
            world.group, Committer(member_id, generation_id), is_transactional=transactional
        )

    assert check("", -1) is E.NONE, "a group without members takes offsets from anybody"
    assert [check("m", 0), check("m", 1)] == [E.UNKNOWN_MEMBER_ID] * 2
    leader, follower = world.stable()
    assert check(follower, 1) is E.NONE
    assert check(follower, 0) is E.ILLEGAL_GENERATION
    assert check("stranger", 1) is E.UNKNOWN_MEMBER_ID
    assert check("", -1) is E.UNKNOWN_MEMBER_ID
    assert check("", -1, transactional=True) is E.NONE
    world.join(leader)
    assert check(follower, 1) is E.NONE, "what was read before the rebalance may still be committed"
    world.join(follower)
    assert check(follower, 2) is E.REBALANCE_IN_PROGRESS
    assert check(follower, 2, transactional=True) is E.NONE


# -- coming and going of the coordinator


def test_unloading_sends_everybody_to_the_new_coordinator(world: World) -> None:
    leader, follower = world.stable()
    joining = world.join(leader)
    world.machine.unload(world.group)
    world.carry_out()
    assert joining[0].error is E.NOT_COORDINATOR
    assert len(world.wheel) == 0
    assert world.heartbeat(follower, 1) is E.COORDINATOR_NOT_AVAILABLE
    assert world.join()[0].error is E.COORDINATOR_NOT_AVAILABLE
    assert world.sync(follower, 1)[0].error is E.COORDINATOR_NOT_AVAILABLE


def test_unloading_during_the_sync(world: World) -> None:
    answer = world.join()
    world.wait(INITIAL_DELAY_MS)
    world.store_error = None
    waiting = world.sync(answer[0].member_id, 1, {})
    world.machine.unload(world.group)
    world.carry_out()
    world.end_stores()
    assert [result.error for result in waiting] == [E.NOT_COORDINATOR]


def test_a_loaded_group_above_its_limit_is_cut_down(world: World, make_world: MakeWorld) -> None:
    ids = world.stable(3)
    smaller = make_world(group_max_size=2)
    smaller.group = world.group
    smaller.machine.loaded(smaller.group)
    smaller.carry_out()
    answers = [smaller.join(member_id) for member_id in ids]
    assert [a[0].error for a in answers] == [E.NONE, E.NONE, E.GROUP_MAX_SIZE_REACHED]


# -- what is rare


def test_who_asks_twice_is_answered_once_for_each(world: World) -> None:
    leader, follower = world.stable()
    first, second = world.join(leader), world.join(leader)
    assert (first[0].error, second) == (E.REBALANCE_IN_PROGRESS, [])
    world.join(follower)
    assert second[0].generation_id == 2
    again = world.join(follower)
    assert (again[0].error, again[0].generation_id) == (E.NONE, 2), "an answer that was lost is repeated"
    waiting, repeated = world.sync(follower, 2), world.sync(follower, 2)
    assert (waiting[0].error, repeated) == (E.REBALANCE_IN_PROGRESS, [])
    world.sync(leader, 2, {follower: b"part"})
    assert repeated[0].assignment == b"part"


def test_a_leader_that_does_not_come_back_is_replaced(world: World) -> None:
    leader = world.stable(1, group_instance_id="i1")[0]
    second = world.join(group_instance_id="i2")
    world.wait(SESSION_MS - 1)
    world.heartbeat(leader, 1, "i1")
    world.wait(REBALANCE_MS - SESSION_MS + 1_000)
    assert second == [] or second[0].leader_id == second[0].member_id
    world.wait(REBALANCE_MS)
    assert (second[0].error, second[0].leader_id) == (E.NONE, second[0].member_id)


def test_static_members_that_are_all_away_are_waited_for(world: World) -> None:
    ids = world.stable(1, group_instance_id="i1")
    world.machine._rebalance.prepare(world.group, "a test")
    world.carry_out()
    for _ in range(REBALANCE_MS // 1_000 + 1):
        world.wait(1_000)
        world.heartbeat(ids[0], 1, "i1")
    assert (world.group.state, list(world.group.members)) == (S.PREPARING_REBALANCE, ids)
    world.wait(SESSION_MS)
    assert world.group.state is S.EMPTY


def test_a_static_member_that_comes_back_with_another_protocol_rebalances(world: World) -> None:
    old = world.stable(1, group_instance_id="i")[0]
    answer = world.join(group_instance_id="i", protocols=(("rr", b"x"), ("range", b"r")))
    assert (answer[0].generation_id, answer[0].protocol_name) == (2, "rr")
    assert answer[0].member_id != old


def test_an_empty_group_knows_no_member(world: World) -> None:
    (member_id,) = world.stable(1)
    world.leave(member_id)
    assert world.group.state is S.EMPTY
    assert world.join(member_id)[0].error is E.UNKNOWN_MEMBER_ID
    assert world.sync(member_id, 2)[0].error is E.UNKNOWN_MEMBER_ID


def test_a_dead_group_takes_nothing(world: World) -> None:
    (member_id,) = world.stable(1)
    world.store_error = None
    world.join(group_instance_id="new")
    world.machine.unload(world.group)
    world.carry_out()
    check = world.machine.check_commit(world.group, Committer(member_id, 1))
    assert check is E.COORDINATOR_NOT_AVAILABLE
    world.machine.timer_is_due(world.group, TimerKey(TimerKind.SESSION, "g", member_id))
    world.end_stores()
    assert (world.group.state, world.machine.outbox.is_empty) == (S.DEAD, True)


def test_an_empty_group_that_cannot_be_stored_is_empty_all_the_same(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    (member_id,) = world.stable(1)
    world.store_error = E.NOT_ENOUGH_REPLICAS
    assert world.leave(member_id) is E.NONE
    assert world.group.state is S.EMPTY
    assert "Failed to write empty metadata for group g: NOT_ENOUGH_REPLICAS" in caplog.text


def test_every_transition_of_the_table_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the table allows no transition that no event causes."""
    seen: set[tuple[S, S]] = set()
    transition_to = Group.transition_to

    def watched(group: Group, state: S, now_ms: int) -> None:
        seen.add((group.state, state))
        transition_to(group, state, now_ms)

    monkeypatch.setattr(Group, "transition_to", watched)

    def bring(state: S) -> World:
        world = World()
        if state is S.STABLE:
            world.stable(1)
        elif state is not S.EMPTY:
            world.join(group_instance_id="i")
        if state is S.COMPLETING_REBALANCE:
            world.wait(INITIAL_DELAY_MS)
        if state is S.DEAD:
            world.machine.unload(world.group)
        assert world.group.state is state
        return world

    for state in S:
        world = bring(state)
        world.join()
        world = bring(state)
        world.leave("", "i")
        world.wait(INITIAL_DELAY_MS)
        world = bring(state)
        world.machine.unload(world.group)
    assert seen == {(before, after) for after, allowed in VALID_PREVIOUS_STATES.items() for before in allowed}


# -- sessions and fences


@pytest.mark.parametrize("sign_of_life", ["sync", "commit"])
def test_whoever_fetches_its_part_or_commits_keeps_its_session(world: World, sign_of_life: str) -> None:
    leader, follower = world.stable()
    for _ in range(3):
        world.wait(SESSION_MS - 1)
        world.heartbeat(leader, 1)
        if sign_of_life == "sync":
            assert world.sync(follower, 1)[0].assignment == follower.encode()
        else:
            assert world.machine.check_commit(world.group, Committer(follower, 1)) is E.NONE
            world.carry_out()
    assert list(world.group.members) == [leader, follower]
    world.wait(2 * SESSION_MS)
    assert world.group.members == {}


def test_a_transaction_that_names_a_generation_but_no_member_is_fenced(world: World) -> None:
    world.stable()
    for generation_id in (0, 1):
        committer = Committer("", generation_id)
        assert world.machine.check_commit(world.group, committer, is_transactional=True) is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("size_max", "state"), [(1, S.PREPARING_REBALANCE), (2, S.STABLE)])
def test_a_loaded_group_rebalances_only_above_its_limit(
    world: World, make_world: MakeWorld, size_max: int, state: GroupState
) -> None:
    world.stable(2)
    taken_over = make_world(group_max_size=size_max)
    taken_over.group = world.group
    taken_over.machine.loaded(taken_over.group)
    taken_over.carry_out()
    assert taken_over.group.state is state


def test_members_that_died_with_the_old_coordinator_are_removed_by_the_new_one(world: World) -> None:
    world.stable()
    world.move()
    assert len(world.group.members) == 2
    world.wait(SESSION_MS)
    assert world.group.members == {}


def test_a_deleted_group_answers_those_who_wait_and_leaves_no_timer(world: World) -> None:
    waiting = world.join()
    pending = world.join(needs_known_member_id=True)[0].member_id
    world.machine.delete(world.group)
    world.carry_out()
    assert (waiting[0].error, world.group.state, len(world.wheel)) == (E.UNKNOWN_MEMBER_ID, S.DEAD, 0)
    assert world.join(pending)[0].error is E.COORDINATOR_NOT_AVAILABLE
