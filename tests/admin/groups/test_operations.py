"""Describing, resetting and deleting where things go wrong: no leader, errors, lost answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from event_loop import staged
from scripted_brokers import HANG_UP, SILENCE, scripted_cluster
from scripted_groups import ScriptedGroups

from cli.exit_codes import ExitCode
from cli.views.groups import group_list_report
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, OutcomeUnknown, Refused, Unknown
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.groups.committing import reset_offsets
from engine.admin.groups.deleting import (
    DeletionResult,
    NothingCommitted,
    delete_groups,
    doubts_of,
    find_groups_to_delete,
    find_offsets_of_groups,
)
from engine.admin.groups.describing import Wanted, describe, list_consumer_groups, parse_filter
from engine.admin.groups.group_reading import list_groups
from engine.admin.groups.reset_plan import ResetResult, ResetSpec, ResetTo, TopicScope, parse_topic_scope
from engine.admin.groups.resetting import PlannedReset, offsets_after, offsets_before, plan_reset
from engine.admin.groups.scope import GroupScope, scope_of, unlisted
from engine.admin.groups.values import GroupState
from engine.admin.lag.measuring import LagMeter, LagOptions
from engine.admin.offsets.listing import end_offsets
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.kafka.protocol.apis.offset_commit import OffsetCommitRequest

Scene = Callable[[ScriptedGroups, Cluster], Awaitable[None]]
EARLIEST, LATEST = ResetSpec(ResetTo.EARLIEST), ResetSpec(ResetTo.LATEST)


def play(scene: Scene, *, greeter: int = 0) -> None:
    async def playing() -> None:
        async with asyncio.timeout(20), scripted_cluster(2) as brokers:
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap[greeter:]))
            async with Cluster(target, timeout_s=10) as cluster:
                world = ScriptedGroups(brokers, {})
                world.state = "Empty"
                await scene(world, cluster)

    asyncio.run(playing())


def all_of(*names: str) -> GroupScope:
    return scope_of(names, is_all=not names)


def told(failures: list[AdminError] | tuple[AdminError, ...]) -> list[tuple[str, str | None]]:
    return [(error.message, error.where) for error in failures]


@staged(play)
async def test_partitions_that_nobody_knows_of_are_rows_with_a_reason(
    world: ScriptedGroups, cluster: Cluster, /
) -> None:
    world.offsets = {"g1": {("t", 0): 60, ("t", 2): 5, ("gone", 0): 3}, "g2": {}}
    described = await describe(cluster, all_of())
    assert described.failures == ()
    group, two = described.groups
    assert [(p.name, p.current_offset, p.log_end_offset, p.lag, p.error) for p in group.partitions] == [
        (("gone", 0), 3, None, None, "the topic or partition does not exist"),
        (("t", 0), 60, 100, 40, None),
        (("t", 2), 5, None, None, "no leader"),
    ]
    assert (two.partitions, two.state) == ((), GroupState.EMPTY)


@staged(play)
async def test_a_group_that_may_not_be_seen_does_not_hide_the_others(
    world: ScriptedGroups, cluster: Cluster, /
) -> None:
    world.offsets = {"g1": {}, "g2": {}}
    world.errors = {"g2": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    described = await describe(cluster, all_of("g1", "g2", "g4"), Wanted.STATE)
    assert [group.group for group in described.groups] == ["g1"]
    assert told(described.failures) == [
        ("GROUP_AUTHORIZATION_FAILED", "group g2"),
        ("consumer group 'g4' does not exist", None),
    ]


@staged(play)
async def test_states_of_brokers_that_list_none_are_asked_for(world: ScriptedGroups, cluster: Cluster, /) -> None:
    world.offsets = {"g1": {}, "g2": {}}
    world.listed_state = ""
    listed = await list_consumer_groups(cluster, parse_filter("empty", None))
    assert [(group.group, group.state) for group in listed.groups] == [
        ("g1", GroupState.EMPTY), ("g2", GroupState.EMPTY),
    ]  # fmt: skip
    assert (await list_consumer_groups(cluster, parse_filter("stable", None))).groups == ()


@staged(play)
async def test_groups_whose_coordinator_is_gone_are_told_of(world: ScriptedGroups, cluster: Cluster, /) -> None:
    world.offsets = {"g1": {}}
    world.cluster.leaders["__consumer_offsets"] = [0, -1, 1, -1]
    listed = await list_consumer_groups(cluster, parse_filter(None, None))
    assert [group.group for group in listed.groups] == ["g1"]
    assert told(listed.failures) == [
        (
            "groups in 2 partitions of the offsets topic are not known: no leader",
            "__consumer_offsets-1, __consumer_offsets-3",
        )
    ]
    assert len((await describe(cluster, all_of(), Wanted.STATE)).failures) == 1


@staged(play)
async def test_a_frozen_broker_costs_its_groups_only(
    world: ScriptedGroups, cluster: Cluster, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.admin.cluster.asking.ANSWER_LIMIT_S", 1.0)
    world.offsets = {"g1": {}, "g2": {("t", 0): 60, ("t", 1): 61}}
    frozen = world.cluster.brokers[1].answers
    frozen |= dict.fromkeys(frozen, lambda _: SILENCE)
    wire = await cluster.wire()
    listing = await list_groups(wire, patience_s=0)
    assert ([group.group for group in listing.groups], list(listing.failures)) == (["g2"], [1])
    message = unlisted(1, listing.failures[1]).message
    assert message == "the groups of broker 1 are not known: no answer within 1 s"
    ends = await end_offsets(wire, [TopicPartition("t", 0), TopicPartition("t", 1)], patience_s=0)
    assert [isinstance(end, Unknown) for end in ends.values()] == [False, True]


@staged(play, greeter=1)
async def test_a_frozen_broker_is_not_asked_who_coordinates(world: ScriptedGroups, cluster: Cluster, /) -> None:
    world.offsets = {"g1": {("t", 1): 60}}
    frozen = world.cluster.brokers[0].answers
    frozen |= dict.fromkeys(frozen, lambda _: SILENCE)
    described = await describe(cluster, all_of("g1"))
    assert [[row.log_end_offset for row in group.partitions] for group in described.groups] == [[100]]


@staged(play)
async def test_a_frozen_broker_uses_up_its_time_once(
    world: ScriptedGroups, cluster: Cluster, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command asks coordinators, then leaders. A broker that did not answer the first request gets less time."""
    monkeypatch.setattr("engine.admin.cluster.asking.ANSWER_LIMIT_S", 2.0)
    monkeypatch.setattr("engine.admin.cluster.asking.SILENT_LIMIT_S", 0.5)
    world.offsets = {"g1": {("t", 0): 60}, "g2": {("t", 0): 60, ("t", 1): 61}}
    frozen = world.cluster.brokers[1].answers
    frozen |= {key: lambda _: SILENCE for key in frozen if key is not ApiKey.METADATA}
    described = await describe(cluster, all_of())
    assert told(described.failures) == [("the groups of broker 1 are not known: no answer within 2 s", None)]
    ((group, rows),) = [(group.group, group.partitions) for group in described.groups]
    assert (group, [(row.log_end_offset, row.error) for row in rows]) == (
        "g2",
        [(100, None), (None, "no answer within 0.5 s: broker 1")],
    )


@staged(play)
async def test_groups_of_other_protocols_are_no_consumers(world: ScriptedGroups, cluster: Cluster, /) -> None:
    world.offsets = {"g1": {("t", 0): 5}, "g2": {}}
    world.protocols = {"g2": "connect"}
    listed = await list_consumer_groups(cluster, parse_filter(None, None))
    assert [group.group for group in listed.groups] == ["g1"]
    report = group_list_report(listed, with_state=False, with_type=False, exit_code=ExitCode.DONE)
    assert report.notes == ("groups of other protocols are not listed: g2 (connect)",)
    described = await describe(cluster, all_of())
    assert ([group.group for group in described.groups], described.others) == (["g1"], ("g2",))
    assert (await describe(cluster, all_of("g2"))).others == ()
    meter = LagMeter(cluster, all_of("g1", "g2"), lambda _: True, LagOptions(looks_max=1))
    lags = {group.group: group.error for group in (await meter.measure())[0].groups}
    assert lags == {"g1": None, "g2": "a group of protocol connect: klamm cannot determine its lag"}
    assert meter.others == ()
    all_groups = LagMeter(cluster, all_of(), lambda _: True, LagOptions(looks_max=1))
    answer, _ = await all_groups.measure()
    assert ([group.group for group in answer.groups], all_groups.others) == (["g1"], ("g2",))
    assert [group.group for group in (await plan_reset(cluster, all_of(), None, LATEST)).groups] == ["g1"]
    assert (await find_groups_to_delete(cluster, all_of())).names == ["g1"]


async def planned(cluster: Cluster, spec: ResetSpec, topics: TopicScope | None, *names: str) -> PlannedReset:
    return await plan_reset(cluster, all_of(*names), topics, spec)


@staged(play)
async def test_a_group_is_reset_as_a_whole_or_not_at_all(world: ScriptedGroups, cluster: Cluster, /) -> None:
    world.offsets = {"g1": {("t", 0): 60, ("t", 2): 5}, "g2": {("t", 1): 7, ("gone", 0): 3}}
    plan = await planned(cluster, EARLIEST, None)
    assert [group.group for group in plan.able] == ["g2"]
    assert told(plan.refusals) == [("no leader", "group g1, partition t-2")]
    assert plan.refusals[0].hint == Phrase("the partition has no leader: ", Operation.DESCRIBE_UNAVAILABLE)
    assert offsets_after(plan.able) == {"g2": {TopicPartition("t", 1): 10}}
    assert offsets_before(plan.able) == {"g2": {TopicPartition("t", 1): 7}}
    assert plan.able[0].warnings == ("partition gone-0 does not exist any more; its offset is left alone",)


@staged(play)
async def test_topics_that_are_named_must_be_there(world: ScriptedGroups, cluster: Cluster, /) -> None:
    world.offsets = {"g1": {("gone", 0): 3}}
    for scope in ((("gone", None),), (("t", (0, 9)),)):
        with pytest.raises(NotFound, match="does not exist"):
            await planned(cluster, EARLIEST, TopicScope(scope), "g1")


@staged(play)
async def test_a_new_group_may_be_made_by_naming_topics_only(world: ScriptedGroups, cluster: Cluster, /) -> None:
    made = await planned(cluster, LATEST, TopicScope((("t", (0,)),)), "g8")
    assert [(group.group, group.is_new, group.resets[0].new_offset) for group in made.able] == [("g8", True, 100)]
    missing = await planned(cluster, LATEST, None, "g8")
    assert (missing.able, told(missing.refusals)) == ([], [("consumer group 'g8' does not exist", None)])


@staged(play)
async def test_offsets_that_are_not_there_are_moved_with_a_warning(world: ScriptedGroups, cluster: Cluster, /) -> None:
    world.offsets = {"g1": {("t", 0): 60, ("t", 1): 70}}
    plan = await planned(cluster, ResetSpec(ResetTo.SHIFT_BY, -55), None, "g1")
    assert [reset.new_offset for reset in plan.able[0].resets] == [10, 15]
    assert plan.able[0].warnings == ("new offset 5 is lower than the earliest of partition t-0; using 10",)
    nothing = await planned(cluster, ResetSpec(ResetTo.SHIFT_BY, 1), TopicScope((("t", (0, 2)),)), "g1")
    assert isinstance(nothing.refusals[0], BadRequest)


@staged(play)
async def test_a_moved_coordinator_is_committed_to_again(world: ScriptedGroups, cluster: Cluster, /) -> None:
    world.offsets = {"g1": {("t", 0): 60}}
    world.change_answers = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    plan = await planned(cluster, LATEST, None, "g1")
    rows, failures = await reset_offsets(cluster, plan.able)
    assert ([(row.new_offset, row.result) for row in rows], failures) == ([(100, ResetResult.RESET)], [])
    sent = world.cluster.brokers[1].requests(OffsetCommitRequest)
    assert len(sent) == 3
    assert (sent[0].generation_id_or_member_epoch, sent[0].member_id) == (-1, "")


FAILED = ResetResult.FAILED
DENIED = "access denied: ask an administrator of the cluster for an ACL on group g1"


@pytest.mark.parametrize(
    ("answer", "kind", "hint", "result"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, Refused, "a consumer joined meanwhile: stop it, then try again", FAILED),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Refused, DENIED, FAILED),
        (HANG_UP, OutcomeUnknown, "look before you send it again: the list of groups", ResetResult.UNDER_WAY),
    ],
)
@staged(play)
async def test_a_commit_that_failed_is_told_and_not_sent_again(
    world: ScriptedGroups, cluster: Cluster, /, answer: object, kind: type, hint: str, result: ResetResult
) -> None:
    world.offsets = {"g1": {("t", 0): 60, ("t", 1): 61}, "g2": {("t", 0): 60}}
    world.change_answers = [answer]
    plan = await planned(cluster, LATEST, None, "g1")
    rows, failures = await reset_offsets(cluster, plan.able)
    assert {row.result for row in rows} == {result}
    assert [(type(error), str(error.hint)) for error in failures] == [(kind, hint)]
    assert len(world.cluster.brokers[1].requests(OffsetCommitRequest)) == 1, "it may have been carried out"


@staged(play)
async def test_deleting_refuses_the_active_and_deletes_the_others(world: ScriptedGroups, cluster: Cluster, /) -> None:
    world.offsets = {"g1": {}, "g2": {}, "g3": {}}
    world.change_answers = [ErrorCode.NOT_COORDINATOR, ErrorCode.NON_EMPTY_GROUP]
    wanted = await find_groups_to_delete(cluster, all_of("g1", "g3"))
    rows, failures = await delete_groups(cluster, wanted)
    assert {row.result for row in rows} == {DeletionResult.FAILED}, "members came meanwhile"
    assert [type(error) for error in failures] == [Refused, Refused]
    assert len(world.cluster.brokers[1].requests(DeleteGroupsRequest)) == 2
    world.state = "Stable"
    refused = await find_groups_to_delete(cluster, all_of("g1", "g2"))
    assert (refused.names, list(refused.refusals)) == ([], ["g1", "g2"])
    assert "m (c at /h), x (c at /h)" in refused.refusals["g1"].message


@staged(play)
async def test_a_group_may_be_named_by_a_pattern_of_whole_ids(world: ScriptedGroups, cluster: Cluster, /) -> None:
    world.offsets = {"app.a": {("t", 0): 5}, "app.b": {("t", 0): 6}, "app.a2": {}, "x+": {}, "connect": {}}
    world.protocols = {"connect": "connect"}
    for names, meant in [
        (["app.[ab]"], ["app.a", "app.b"]),
        (["app.a.*", "app.a"], ["app.a", "app.a2"]),
        (["x+"], ["x+"]),  # there is such a group
        (["(c|x).*"], ["x+"]),
    ]:
        assert (await find_groups_to_delete(cluster, all_of(*names))).names == meant
    assert [group.group for group in (await plan_reset(cluster, all_of("app.[ab]"), None, LATEST)).groups] == [
        "app.a",
        "app.b",
    ]
    in_t = parse_topic_scope(["t"])
    offsets = await find_offsets_of_groups(cluster, ["app.*", "app.b"], in_t)
    assert [(row.group, row.offset) for _, rows in offsets for row in rows] == [("app.a", 5), ("app.b", 6)]
    for names in (["app.*", "app.a2"], ["app.a2.*"]):
        with pytest.raises(NothingCommitted, match="nothing in topic 't'"):
            await find_offsets_of_groups(cluster, names, in_t)
    nothing = await find_groups_to_delete(cluster, all_of("pp.*", "app.a", "app("))
    assert nothing.names == ["app.a"]
    assert sorted(error.message for error in nothing.failures) == [
        "consumer group 'app(' does not exist",
        "no consumer group matches 'pp.*'",
    ]


@pytest.mark.parametrize("type_name", ["classic", "consumer"])
@staged(play)
async def test_offsets_of_topics_that_a_member_subscribes_to_are_not_deleted(
    world: ScriptedGroups, cluster: Cluster, /, type_name: str
) -> None:
    """Kafka goes by subscriptions: a topic that is gone is nobody's, and its offsets are refused all the same."""
    world.offsets = {"g1": {("t", 0): 1, ("gone", 0): 3, ("other", 0): 2}}
    world.state, world.subscribed = "Stable", ["gone"]
    if type_name == "consumer":
        world.types = {"g1": type_name}
        for broker in world.cluster.brokers:
            broker.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = world.describe_new
    scope = parse_topic_scope(["t", "gone", "other"])
    failed, would = DeletionResult.FAILED, DeletionResult.WOULD_BE_DELETED

    async def found() -> tuple[dict[str, DeletionResult], list[str]]:
        offsets = await find_offsets_of_groups(cluster, ["g1"], scope)
        return {row.topic: row.result for _, rows in offsets for row in rows}, doubts_of(offsets)

    assert await found() == ({"t": failed, "gone": failed, "other": would}, [])
    world.subscribed = None
    doubt = "group g1: what its members subscribe to is not known now, so the cluster may refuse"
    assert await found() == ({"t": failed, "gone": would, "other": would}, [doubt])
    world.state = "Empty"
    assert await found() == (dict.fromkeys(("t", "gone", "other"), would), [])
