"""Which groups a caller means, and where they are: at coordinators, in ZooKeeper, or in both places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, OutcomeUnknown, Refused, Unknown, Unreachable
from engine.admin.cluster.remedies import Do, Operation, Parameter, Phrase, Words
from engine.admin.groups.group_reading import describe_groups, is_absent, list_groups
from engine.admin.groups.values import GroupDescription, GroupListing, GroupType, ListedGroup
from engine.common.errors import ErrorCode
from engine.common.listing import first_few
from engine.common.quantities import counted, plural
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.kafka.formats.consumer_protocol import CONSUMER_PROTOCOL_TYPE

NO_COORDINATOR = -1
_PATTERN = re.compile(r"[][*+?(){}|^$\\]")
"""What makes a text a pattern, if no group has it as its id. Ids often have dots."""

LIST_HINT = Phrase("list the groups with: ", Operation.LIST_GROUPS)
_LEADERLESS_HINT = Phrase("see who is missing: ", Do(Operation.DESCRIBE_UNAVAILABLE_OF_TOPIC, GROUP_METADATA_TOPIC))
_HINTS: Mapping[ErrorCode, Words] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _LEADERLESS_HINT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still reading its groups: try again in a moment",
    ErrorCode.NON_EMPTY_GROUP: "a consumer joined meanwhile: stop it, then try again",
}


@dataclass(frozen=True, slots=True)
class GroupScope:
    """Named groups, or (no name) all of them. A name that no group has may be a pattern of whole ids."""

    names: tuple[str, ...] = ()

    @property
    def is_all(self) -> bool:
        return not self.names


@dataclass(frozen=True, slots=True)
class FoundGroups:
    """Where the groups are. ``coordinators`` is what the listing said; ``failures`` what could not be read."""

    brokers: tuple[str, ...]
    zookeeper: tuple[str, ...]
    described: Mapping[str, GroupDescription]
    """Groups that were named, as their coordinators described them."""
    coordinators: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[AdminError, ...] = ()
    others: tuple[str, ...] = ()
    """Groups of other protocols, such as Kafka Connect's, which "all" leaves out."""


def scope_of(groups: Sequence[str], *, is_all: bool) -> GroupScope:
    """Return the scope that ``--group`` and ``--all-groups`` name.

    Raises:
        BadRequest: none or both are given, or an id is empty.
    """
    if bool(groups) == is_all:
        raise BadRequest(Phrase("give ", Parameter.GROUP, ", once for each group, or ", Parameter.ALL_GROUPS))
    if "" in groups:
        raise BadRequest("the group id is empty", where=Parameter.GROUP, hint=LIST_HINT)
    return GroupScope(tuple(dict.fromkeys(groups)))


def asks_brokers(cluster: Cluster) -> bool:
    """Whether the scope includes groups at coordinators: yes, unless ZooKeeper is forced."""
    return cluster.target.may_ask_brokers


def asks_zookeeper(cluster: Cluster) -> bool:
    """Whether the scope includes groups in ZooKeeper: yes if it is named, unless the wire is forced."""
    return cluster.target.may_ask_zookeeper


async def list_everywhere(cluster: Cluster) -> tuple[list[ListedGroup], list[AdminError]]:
    """List all groups of both kinds by name, and say what could not be read; old brokers are asked for states.

    Raises:
        AdminError: nothing at all could be read.
    """
    groups: list[ListedGroup] = []
    failures: list[AdminError] = []
    if asks_zookeeper(cluster):
        from engine.admin.groups.old_consumers import old_group_names, read_old_states

        zk = await cluster.zookeeper()
        states = await read_old_states(zk, await old_group_names(zk))
        groups += [ListedGroup(g, GroupType.ZOOKEEPER, "", state, NO_COORDINATOR) for g, state in states.items()]
    if asks_brokers(cluster):
        try:
            wire = await cluster.wire()
            listing = await list_groups(wire)
        except AdminError as error:
            if not asks_zookeeper(cluster):
                raise
            failures.append(error)
        else:
            groups += await _with_states(cluster, listing)
            failures += [unlisted(broker_id, why) for broker_id, why in listing.failures.items()]
            failures += [without_coordinator(listing.leaderless)] if listing.leaderless else []
    return sorted(groups, key=lambda group: (group.group, group.type)), failures


async def find_groups(
    cluster: Cluster, scope: GroupScope, *, may_be_absent: bool = False, takes_patterns: bool = True
) -> FoundGroups:
    """Find the groups of a scope. A name that does not exist, or has no coordinator, is among the failures.

    With ``may_be_absent`` an unknown name means a new group, which a commit to its coordinator creates. A pattern never
    does: it is a failure if it matches no group of consumers.
    """
    if scope.is_all:
        listed, failures = await list_everywhere(cluster)
        consumers = [group for group in listed if is_of_consumers(group)]
        return FoundGroups(
            tuple(group.group for group in consumers if group.type is not GroupType.ZOOKEEPER),
            tuple(group.group for group in consumers if group.type is GroupType.ZOOKEEPER),
            {},
            {group.group: group.coordinator for group in consumers if group.type is not GroupType.ZOOKEEPER},
            tuple(failures),
            tuple(group.group for group in listed if not is_of_consumers(group)),
        )
    names, failures = scope.names, list[AdminError]()
    if takes_patterns:
        names, failures = await ids_in(cluster, names)
    groups = await _find_named(cluster, names, may_be_absent=may_be_absent) if names else FoundGroups((), (), {})
    return replace(groups, failures=(*groups.failures, *failures))


async def ids_in(cluster: Cluster, texts: Sequence[str]) -> tuple[tuple[str, ...], list[AdminError]]:
    """Return the ids that are meant, each once, and what matches none. Patterns mean groups of consumers only."""
    if not any(map(is_pattern, texts)):
        return tuple(texts), []
    listed, failures = await list_everywhere(cluster)
    existing = {group.group for group in listed}
    consumers = sorted({group.group for group in listed if is_of_consumers(group)})
    ids: dict[str, None] = {}
    for text in texts:
        pattern = None if text in existing or not is_pattern(text) else re.compile(text)
        matching = [text] if pattern is None else [name for name in consumers if pattern.fullmatch(name)]
        ids |= dict.fromkeys(matching)
        if not matching:
            is_sure = not asks_brokers(cluster) or not await cluster.hides_groups()
            hidden = "" if is_sure else f", or it is hidden from {cluster.principal or 'this login'}"
            failures.append(NotFound(f"no consumer group matches {text!r}{hidden}", hint=LIST_HINT))
    return tuple(ids), failures


async def note_hidden_groups(cluster: Cluster, scope: GroupScope) -> None:
    """Let the cluster note the right without which brokers do not list all groups, if the scope needs a list."""
    if asks_brokers(cluster) and (scope.is_all or any(map(is_pattern, scope.names))):
        await cluster.hides_groups()


def is_pattern(text: str) -> bool:
    """Whether a text may be a pattern; if not, it is an id."""
    try:
        re.compile(text)
    except re.error:
        return False
    return _PATTERN.search(text) is not None


def is_of_consumers(group: ListedGroup | GroupDescription) -> bool:
    """Whether Kafka's tool would show it: groups of other protocols (Connect, schema registries) are not consumers."""
    return group.protocol_type in ("", CONSUMER_PROTOCOL_TYPE)


def why_without_lag(group: ListedGroup | GroupDescription) -> str:
    """Return why a group that is not of consumers has no known lag."""
    return f"a group of protocol {group.protocol_type}: klamm cannot determine its lag"


def as_error(unknown: Unknown, where: str) -> AdminError:
    """Return the failure that explains to the user why something is unknown."""
    if unknown.may_still_happen:
        look_first = Phrase("look before you send it again: ", Operation.LIST_GROUPS)
        return OutcomeUnknown(unknown.message, where=where, hint=look_first)
    if unknown.code is None:
        return Unreachable(unknown.message, where=where)
    message = unknown.message.removeprefix(f"{unknown.code.name}: ")
    hint = _HINTS.get(unknown.code)
    return Refused(unknown.code, None if message == unknown.code.name else message, where=where, hint=hint)


def group_not_found(name: str) -> NotFound:
    """Return the failure of a named group that does not exist."""
    return NotFound(f"consumer group {name!r} does not exist", hint=LIST_HINT)


def unlisted(broker_id: int, why: Unknown) -> AdminError:
    """Return the failure of a broker that does not list its groups."""
    error = as_error(why, f"broker {broker_id}")
    error.where = None
    error.message = f"the groups of broker {broker_id} are not known: {error.message}"
    return error


def without_coordinator(partitions: Sequence[int]) -> AdminError:
    """Return the failure for groups that cannot be listed because their part of the offsets topic has no leader."""
    count = len(partitions)
    return Refused(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        f"groups in {counted(count, 'partition')} of the offsets topic are not known: no leader",
        where=first_few(f"{GROUP_METADATA_TOPIC}-{index}" for index in partitions),
        hint=_LEADERLESS_HINT,
    )


def partitions_text(group: str, partitions: Iterable[object]) -> str:
    """Return where something went wrong, with a few of the partitions."""
    names = [str(partition) for partition in partitions]
    return f"group {group}, {plural('partition', len(names))} {first_few(names)}"


async def _find_named(cluster: Cluster, names: Sequence[str], *, may_be_absent: bool) -> FoundGroups:
    old = await _old_among(cluster, names)
    described = await _described_among(cluster, names, is_needed=not old)
    existing = {
        name: group
        for name, group in described.items()
        if isinstance(group, GroupDescription) and (not is_absent(group) or (may_be_absent and name not in old))
    }
    failures = []
    for name in names:
        if name not in existing and name not in old:
            why = described.get(name)
            failures.append(as_error(why, f"group {name}") if isinstance(why, Unknown) else group_not_found(name))
    coordinators = {name: group.coordinator for name, group in existing.items()}
    return FoundGroups(tuple(existing), old, existing, coordinators, tuple(failures))


async def _old_among(cluster: Cluster, names: Sequence[str]) -> tuple[str, ...]:
    if not asks_zookeeper(cluster):
        return ()
    from engine.admin.groups.old_consumers import read_old_states
    from engine.kafka.zk.consumers import is_group_znode_name

    possible = [name for name in names if is_group_znode_name(name)]
    return tuple(await read_old_states(await cluster.zookeeper(), possible))


async def _described_among(
    cluster: Cluster, names: Sequence[str], *, is_needed: bool
) -> Mapping[str, GroupDescription | Unknown]:
    """Describe groups at coordinators; unreachable brokers become a value if they are not needed."""
    if not asks_brokers(cluster):
        return {}
    try:
        return await describe_groups(await cluster.wire(), names)
    except AdminError as error:
        if is_needed:
            raise
        return dict.fromkeys(names, Unknown.of_error(error))


async def _with_states(cluster: Cluster, listing: GroupListing) -> list[ListedGroup]:
    """Brokers before 2.6 list no states, so describe each of their groups."""
    missing = {group.group: group.coordinator for group in listing.groups if group.state is None}
    if not missing:
        return list(listing.groups)
    described = await describe_groups(await cluster.wire(), missing, coordinators=missing)
    return [
        group
        if group.state is not None or not isinstance(description := described[group.group], GroupDescription)
        else ListedGroup(group.group, group.type, group.protocol_type, description.state, group.coordinator)
        for group in listing.groups
    ]
