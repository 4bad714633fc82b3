"""Requests about groups: coordinators, members of both kinds, commits and deletions, in right and wrong order."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from patience import within
from side_by_side import Side, SideBySide

from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.heartbeat import HeartbeatRequest
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from engine.kafka.protocol.apis.list_groups import ListGroupsRequest
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from engine.kafka.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

READ = b"\0\0\0\0\0\1\0\4read\xff\xff\xff\xff"
"""A subscription to the topic ``read``."""

WORDS = {"error_message"}
DEADLINE_S = 30

Offset = tuple[str, int, int, str | None]
Topics = Iterable[tuple[str, list[int]]]


# -- requests


def joining(group: str, member_id: str = "", **values: Any) -> JoinGroupRequest:
    usual: dict[str, Any] = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=READ)],
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **{**usual, **values})


def syncing(group: str, member_id: str, generation: int, part: bytes | None = None, **values: Any) -> SyncGroupRequest:
    parts = [] if part is None else [SyncGroupRequestAssignment(member_id=member_id, assignment=part)]
    return SyncGroupRequest(group_id=group, member_id=member_id, generation_id=generation, assignments=parts, **values)


def beating(group: str, member_id: str, generation: int, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation, group_instance_id=instance)


def leaving(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    identities = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
    return LeaveGroupRequest(group_id=group, members=identities)


def committing(
    group: str, *offsets: Offset, member_id: str = "", generation: int = -1, **of: Any
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic, index, offset, text in offsets or (("read", 0, 5, "m"),):
        entry = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=text)
        topics.setdefault(topic, []).append(entry)
    return OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        **of,
    )


def fetching(group: str, topics: Topics | None) -> OffsetFetchRequest:
    wanted = None if topics is None else [OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in topics]
    return OffsetFetchRequest(group_id=group, topics=wanted)


def fetching_of(*groups: tuple[str, Topics | None], require_stable: bool = False) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if topics is None
                else [OffsetFetchRequestTopics(name=t, partition_indexes=p) for t, p in topics],
            )
            for group, topics in groups
        ],
        require_stable=require_stable,
    )


def forgetting(group: str, *topics: tuple[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for topic, indexes in topics
        ],
    )


# -- the same to both


class Members:
    """The only member of a group at each of the two brokers. Its ids differ, its generations are the same."""

    def __init__(self, both: SideBySide, group: str, version: int = 5, **values: Any) -> None:
        self.both = both
        self.group = group
        self.version = version
        self.values = values
        self.instance: str | None = values.get("group_instance_id")
        self.ids: dict[Side, str] = {}
        self.generation = 0

    def join(self, *, syncs: bool = True) -> None:
        """Bring the member into the group's next generation, and the group to a stable state."""
        for side in self.both.sides.values():
            answer = side.ask(joining(self.group, **self.values), self.version)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                answer = side.ask(joining(self.group, answer.member_id, **self.values), self.version)
            assert answer.error_code == ErrorCode.NONE, answer
            self.ids[side] = answer.member_id
            self.generation = answer.generation_id
            if syncs:
                sync = syncing(self.group, answer.member_id, self.generation, b"part", group_instance_id=self.instance)
                assert side.ask(sync, 3).error_code == ErrorCode.NONE

    def ask(self, what: str, build: Any, versions: Iterable[int]) -> None:
        """Ask both; ``build`` makes the request from the member's id on that side."""
        self.both.ask(f"{what} {self.group}", lambda side: build(self.ids[side]), versions)


def make_ready(both: SideBySide) -> None:
    """Make two topics, and wait for every group's coordinator; the area that comes first does so."""
    if any("read" not in side.ids for side in both.sides.values()):
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("read", "other")]
        both.prepare(CreateTopicsRequest(topics=topics, timeout_ms=15_000), 7)
    names = [f"g{number}" for number in range(40)]
    is_in_time = within(DEADLINE_S)
    for side in both.sides.values():
        while (
            side.ask(FindCoordinatorRequest(key="g", key_type=0), 3).error_code
            or side.ask(ListGroupsRequest(), 0).error_code
            or any(group.error_code for group in side.ask(DescribeGroupsRequest(groups=names), 0).groups)
        ):
            assert is_in_time(), "no coordinator"
            time.sleep(0.05)


def groups_refused(both: SideBySide) -> None:
    """Coordinators, and requests of unknown members."""
    make_ready(both)
    both.ask("coordinator", FindCoordinatorRequest(key="g", key_type=0), range(4))
    both.ask("coordinators", FindCoordinatorRequest(coordinator_keys=["g", "", "g"], key_type=0), range(4, 7))
    both.ask("no coordinators", FindCoordinatorRequest(coordinator_keys=[], key_type=0), range(4, 7))
    for kind in (3, -1):
        both.ask("what kind", FindCoordinatorRequest(key="g", key_type=kind), range(1, 4), unlike=WORDS)
        asked = FindCoordinatorRequest(coordinator_keys=["g", ""], key_type=kind)
        both.ask("what kind", asked, range(4, 7), unlike=WORDS)
    both.ask("no id", joining(""))
    both.ask("unknown", joining("refused", "nobody"))
    for values in (
        {"session_timeout_ms": 1},
        {"session_timeout_ms": 10**8},
        {"protocols": []},
        {"protocol_type": ""},
    ):
        both.ask(f"joining {values}", joining("refused", **values))
    both.ask("unknown instance", joining("refused", "nobody", group_instance_id="i"), range(5, 10))
    for group in ("", "nosuch"):
        both.ask("heartbeat", beating(group, "m", 0))
        both.ask("sync", syncing(group, "m", 0), range(5))
        both.ask("sync", syncing(group, "m", 0, protocol_type="a", protocol_name="b"), [5])
        both.ask("leave", LeaveGroupRequest(group_id=group, member_id="m"), range(3))
        both.ask("leave", leaving(group, ("m", None), ("m", "i"), ("", "i"), ("", None)), range(3, 6))
        both.ask("forget", forgetting(group, ("read", [0])))
        both.ask("delete", DeleteGroupsRequest(groups_names=[group, "nosuch", group]))
        both.ask("describe", DescribeGroupsRequest(groups=[group, "nosuch", group]))
        both.ask("describe", DescribeGroupsRequest(groups=[group], include_authorized_operations=True), range(3, 6))
    both.ask("sync of no protocol", syncing("nosuch", "m", 0), [5])
    both.ask("nobody leaves", leaving("nosuch"), range(3, 6))
    both.ask("nothing deleted", DeleteGroupsRequest(groups_names=[]))
    both.ask("nothing described", DescribeGroupsRequest(groups=[]))


def members_of_groups(both: SideBySide) -> None:
    """The life of one member, in each version: what it may do in its generation, and what in no other."""
    make_ready(both)
    for version in range(10):
        _a_member(both, version)


def _a_member(both: SideBySide, version: int) -> None:
    group = f"member-{version}"
    member = Members(both, group, version)
    member.join(syncs=False)
    generation, old, own = member.generation, member.generation - 1, {"generation": member.generation}
    syncs, beats, commits = min(version, 4), min(version, 4), min(max(version, 1), 9)
    member.ask("commit before sync", lambda id: committing(group, member_id=id, **own), [7])
    member.ask("join again", lambda id: joining(group, id), [version])
    member.ask("another type", lambda id: joining(group, id, protocol_type="x"), [version])
    member.ask("beat before sync", lambda id: beating(group, id, generation), [beats])
    member.ask("sync", lambda id: syncing(group, id, generation, b"x"), [syncs])
    member.ask("sync again", lambda id: syncing(group, id, generation, b"y"), [syncs])
    member.ask("sync too early", lambda id: syncing(group, id, generation + 1), [syncs])
    for kind, name in (("consumer", "no"), ("c", "range"), ("consumer", None), ("consumer", "range")):
        names = {"protocol_type": kind, "protocol_name": name}
        member.ask(f"sync {names}", lambda id, names=names: syncing(group, id, generation, **names), [5])
    both.ask("described", DescribeGroupsRequest(groups=[group]))
    member.ask("beats", lambda id: beating(group, id, generation), [beats])
    member.ask("beats late", lambda id: beating(group, id, old), [beats])
    both.ask("a stranger beats", beating(group, "z", generation), [beats])
    member.ask("commits", lambda id: committing(group, member_id=id, **own), [commits])
    member.ask("commits late", lambda id: committing(group, member_id=id, generation=old), [7])
    member.ask("commits without generation", lambda id: committing(group, member_id=id), [7])
    for who in ({}, {"member_id": "z"}, own, {"member_id": "z", **own}):
        both.ask(f"others commit {who}", committing(group, **who), [7])
    both.ask("forget", forgetting(group, ("read", [0]), ("other", [0]), ("no", [0]), ("read", [9])))
    both.ask("delete", DeleteGroupsRequest(groups_names=[group, "nosuch", ""]), [min(version, 2)])
    if version < 3:
        both.ask("a stranger leaves", LeaveGroupRequest(group_id=group, member_id="z"), [version])
        member.ask("leaves", lambda id: LeaveGroupRequest(group_id=group, member_id=id), [version])
    else:
        several = (("z", None), ("", "q"), ("", None))
        member.ask("leave", lambda id: leaving(group, *several, (id, None), (id, None)), [min(version, 5)])
    both.ask("described when empty", DescribeGroupsRequest(groups=[group]), [5])
    member.ask("beats when gone", lambda id: beating(group, id, generation), [beats])
    member.ask("syncs when gone", lambda id: syncing(group, id, generation), [syncs])
    member.ask("joins when gone", lambda id: joining(group, id), [version])
    member.ask("commits when gone", lambda id: committing(group, member_id=id, **own), [7])
    both.ask("commits to nobody", committing(group, ("read", 0, 6, ""), member_id="zz"), [7])
    both.ask("committed", fetching(group, None), [7])
    both.ask("forget when empty", forgetting(group, ("read", [0])))
    both.ask("deleted", DeleteGroupsRequest(groups_names=[group, group]), [1])


def static_members(both: SideBySide) -> None:
    """A static member that comes back, and the member that it replaces."""
    make_ready(both)
    group = "static"
    member = Members(both, group, group_instance_id="one")
    member.join()
    for version in range(5, 10):
        _comes_back(both, member, version)
    both.ask("is removed", leaving(group, ("", "one"), ("", "one")), [4])
    both.ask("described", DescribeGroupsRequest(groups=[group]), [5])


def _comes_back(both: SideBySide, member: Members, version: int) -> None:
    group = member.group
    before = dict(member.ids)
    generation = member.generation
    member.ask("comes back", lambda id: joining(group, "", group_instance_id="one"), [version])
    member.join()
    assert member.generation == generation, "nobody rebalances"
    for instance in ("one", None):
        both.ask("old beats", lambda side, i=instance: beating(group, before[side], generation, i), [4])
    member.ask("beats", lambda id: beating(group, id, generation, "one"), [4])
    member.ask("beats as another", lambda id: beating(group, id, generation, "two"), [4])
    values = {"generation": generation, "group_instance_id": "one"}
    both.ask("old commits", lambda side, v=values: committing(group, member_id=before[side], **v), [7])
    both.ask("nobody commits", committing(group, group_instance_id="one"), [7])
    member.ask("syncs", lambda id: syncing(group, id, generation, group_instance_id="one"), [4])
    both.ask("old joins", lambda side: joining(group, before[side], group_instance_id="one"), [version])
    both.ask("old leaves", lambda side: leaving(group, (before[side], "one")), [4])
    member.ask("leaves as another", lambda id: leaving(group, (id, "two")), [4])


def groups_rebalancing(both: SideBySide) -> None:
    """What a member gets as an answer while the group waits for others, and in groups of other protocols."""
    make_ready(both)
    group = "moving"
    member = Members(both, group, 4)
    member.join()
    generation = member.generation
    second = {side: side.another_connection() for side in both.sides.values()}
    for side, wire in second.items():
        wire.send(joining(group), 3)
        is_in_time = within(DEADLINE_S)
        while side.ask(DescribeGroupsRequest(groups=[group]), 0).groups[0].group_state == "Stable":
            assert is_in_time(), "no rebalance begins"
            time.sleep(0.02)
    member.ask("beats", lambda id: beating(group, id, generation), range(5))
    member.ask("commits", lambda id: committing(group, member_id=id, generation=generation), [7])
    member.ask("syncs", lambda id: syncing(group, id, generation), [3])
    both.ask("forget", forgetting(group, ("read", [0]), ("other", [0])))
    both.ask("delete", DeleteGroupsRequest(groups_names=[group]))
    both.ask("described", DescribeGroupsRequest(groups=[group]), unlike={"members"})
    member.ask("joins another type", lambda id: joining(group, id, protocol_type="x"), [4])
    both.ask("joins others", joining(group, protocols=[JoinGroupRequestProtocol(name="x", metadata=b"")]), [4])
    for side, wire in second.items():
        assert side.ask(joining(group, member.ids[side]), 4).error_code == ErrorCode.NONE
        assert wire.answer(ApiKey.JOIN_GROUP, 3).error_code == ErrorCode.NONE
        wire.socket.close()
    member.ask("commits before sync", lambda id: committing(group, member_id=id, generation=generation + 1), [7])
    member.ask("strangers assigned", lambda id: syncing(group, id, generation + 1, b"part"), [3])
    other = Members(both, "connect", protocol_type="connect")
    other.join()
    both.ask("forget", forgetting("connect", ("read", [0])))
    both.ask("described", DescribeGroupsRequest(groups=["connect"]))
    both.ask("joins", joining("connect"), [5])
    for name, metadata in (("bytes", b"\xff"), ("nothing", b"")):
        Members(both, name, protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)]).join()
        both.ask("forget", forgetting(name, ("read", [0])))


def offsets_of_groups(both: SideBySide) -> None:
    """Commits without a member in every version, how they are read, and how they go."""
    make_ready(both)
    some: tuple[Offset, ...] = (
        ("read", 0, 5, "m"), ("read", 1, 6, None), ("no", 0, 1, ""), ("read", 7, 1, ""), ("other", 0, -7, "x" * 5000),
    )  # fmt: skip
    wanted: list[tuple[str, list[int]]] = [("read", [0, 1, 7]), ("no", [0]), ("other", [0])]
    for version in range(10):
        group = f"commits-{version}"
        both.ask("some", committing(group, *some), [version])
        both.ask("nowhere", committing(group, ("no", 0, 1, "")), [version])
        both.ask("too large", committing(group, ("other", 0, 1, "x" * 5000)), [version])
        both.ask("nothing", OffsetCommitRequest(group_id=group, topics=[]), [version])
        if version:
            both.ask("a member's", committing(group, member_id="a", generation=3), [version])
            both.ask("no id", committing(""), [version])
        for topics in (wanted, [("read", [])], []):
            both.ask("read", fetching(group, topics), range(8))
        both.ask("read all", fetching(group, None), range(2, 8))
    for group in ("nosuch", ""):
        both.ask("read", fetching(group, [("read", [0, 1])]), range(1, 8))
    groups = (("commits-1", wanted), ("nosuch", None), ("", [("read", [0])]), ("commits-2", []), ("commits-3", None))
    for is_stable in (False, True):
        both.ask("several", fetching_of(*groups, require_stable=is_stable), [8, 9])
    for offset in (2**63 - 1, -(2**63)):
        both.ask(f"offset {offset}", committing("odd", ("read", 0, offset, "m")), [7])
        both.ask("read", fetching("odd", None), [7])
    for retention_ms in (2**63 - 1, 0, -5):
        both.ask(f"kept {retention_ms}", committing("odd", retention_time_ms=retention_ms), range(2, 5))
    both.ask("read", fetching("odd", None), [7])
    twice = [("read", 0, 1, ""), ("read", 1, 2, "")]
    both.ask("named twice", OffsetCommitRequest(
        group_id="odd", topics=[committing("odd", topic).topics[0] for topic in twice]
    ))  # fmt: skip
    both.ask("forget", forgetting("odd", ("read", [0]), ("read", [1]), ("no", [0])))
    both.ask("read", fetching("odd", None), [7])
    both.ask("delete", DeleteGroupsRequest(groups_names=["commits-1", "nosuch", "", "commits-1"]))
    for filters in ([], ["Stable"], ["EMPTY"], ["Empty", "Stable"], ["nope"], [""]):
        both.ask(f"listed {filters}", ListGroupsRequest(states_filter=filters), [4, 5])
    for filters in (["classic"], ["Classic", "consumer"], ["consumer"], ["nope"], [""]):
        both.ask(f"listed {filters}", ListGroupsRequest(types_filter=filters), [5])
    both.ask("listed", ListGroupsRequest())


def offsets_read_behind_their_commits(both: SideBySide) -> None:
    """A request is handled when those before it on its connection are, whether the client waited or not."""
    make_ready(both)
    offsets = []
    for side in both.sides.values():
        with side.another_connection() as client:
            for offset in range(7, 12):
                client.send(committing("ahead", ("read", 0, offset, "m")), 8)
                client.send(fetching_of(("ahead", [("read", [0])])), 8)
            answers = [client.answer(key, 8) for _ in range(5) for key in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH)]
            offsets.append([side.plain(answer) for answer in answers])
    both.compare("at once", 8, *offsets)


AREAS = (
    groups_refused,
    members_of_groups,
    static_members,
    groups_rebalancing,
    offsets_of_groups,
    offsets_read_behind_their_commits,
)
