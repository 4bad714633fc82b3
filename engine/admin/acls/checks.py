"""Checks across all rules: which one decides, which never match or have no effect, which grant too much. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from engine.admin.acls.values import AclRow
from engine.common.acl import AclOperation, ResourceType
from engine.common.model import address_in_java
from engine.kafka.acls import (
    ANY_HOST,
    ANY_NAME,
    ANYBODY,
    CLUSTER_NAME,
    IMPLIED,
    SUPPORTED,
    AclBinding,
    AclEntry,
    PatternType,
    Permission,
    ResourcePattern,
    decide,
)

SUPER_USERS = "super.users"
OPEN_WITHOUT_RULES = "allow.everyone.if.no.acl.found"
_DANGEROUS = {
    AclOperation.ALL, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS,
    AclOperation.CLUSTER_ACTION,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether a principal may do something, by which rule, and all the rules that match, the deciding one first."""

    allowed: bool
    because: str
    rules: tuple[AclRow, ...]


def explain(
    rules: Iterable[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    files: Mapping[str, str | None] | None = None,
) -> Explanation:
    """Say what the rules of a cluster say about one operation.

    ``files`` are the authorizer's settings in the brokers' files, SUPER_USERS and OPEN_WITHOUT_RULES, as far as they
    are set: Kafka's brokers do not show their values (None). Without ``files`` it is not known whether they are set.
    """
    acls: dict[ResourcePattern, list[AclEntry]] = {}
    for rule in rules:
        acls.setdefault(rule.pattern, []).append(rule.entry)
    decision = decide(acls, principal, address_in_java(host), operation, kind, name)
    resource = kind.word if kind is ResourceType.CLUSTER else f"{kind.word} {name}"
    matching = tuple(map(AclRow.of, decision.matching))
    if principal in map(str.strip, ((files or {}).get(SUPER_USERS) or "").split(";")):
        return Explanation(True, f"{principal} is a super user, by {SUPER_USERS} in the brokers' files", matching)
    is_allowed, others = decision.is_allowed, _super_users(files)
    if decision.rule is not None:
        because = f"a rule says: {AclRow.of(decision.rule)}"
        if decision.is_allowed and decision.rule.entry.operation not in (operation, AclOperation.ALL):
            because += f"; {decision.rule.entry.operation.word} implies {operation.word}"
    elif decision.has_rules:
        because = f"{resource} has rules, and none allows this{others}"
    elif files is not None and OPEN_WITHOUT_RULES not in files:
        because = f"no rule is about {resource}: nobody may{others}"
    elif files is not None and files[OPEN_WITHOUT_RULES] is not None:
        is_allowed = str(files[OPEN_WITHOUT_RULES]).strip().lower() == "true"
        because = f"no rule is about {resource}, and {OPEN_WITHOUT_RULES}={files[OPEN_WITHOUT_RULES]}{others}"
    else:
        known = "" if files is None else " (it is set; brokers do not show to what)"
        because = (
            f"no rule is about {resource}: nobody may, unless the brokers' files have {OPEN_WITHOUT_RULES}=true"
            f"{known}{others}"
        )
    return Explanation(is_allowed, because, matching)


def _super_users(files: Mapping[str, str | None] | None) -> str:
    """Return what is not known of super users, who may do everything; nothing if that is known."""
    if files is None:
        return f"; a super user may do everything, and only the brokers' files ({SUPER_USERS}) say who is one"
    if SUPER_USERS in files and files[SUPER_USERS] is None:
        return f"; the brokers' files name super users, who may do everything: brokers do not show who ({SUPER_USERS})"
    return ""


class Problem(Enum):
    """What is odd about a rule."""

    OPENS = "opens_everything"
    NEVER_MATCHES = "never_matches"
    SHADOWED = "shadowed"
    REDUNDANT = "redundant"


@dataclass(frozen=True, slots=True)
class Finding:
    """An odd rule, why it is odd, and the other rule that makes it so."""

    problem: Problem
    because: str
    rule: AclRow
    other: AclRow | None = None


def lint(rules: Sequence[AclBinding]) -> list[Finding]:
    """Return what is odd about rules, the dangerous first."""
    findings = [finding for rule in rules for finding in _alone(rule)]
    findings += _together(rules)
    order = list(Problem)
    return sorted(findings, key=lambda finding: order.index(finding.problem))


def _alone(rule: AclBinding) -> Iterator[Finding]:
    for because in _never(rule):
        yield Finding(Problem.NEVER_MATCHES, because, AclRow.of(rule))
    why = _opens(rule)
    if why is not None:
        yield Finding(Problem.OPENS, why, AclRow.of(rule))


def _never(rule: AclBinding) -> Iterator[str]:
    """Return why no request ever matches a rule."""
    pattern, entry = rule.pattern, rule.entry
    word = pattern.resource_type.word
    if entry.operation not in (AclOperation.ALL, *SUPPORTED[pattern.resource_type]):
        yield f"{entry.operation.word} does not apply to a {word}"
    if pattern.resource_type is ResourceType.CLUSTER and not pattern.covers(CLUSTER_NAME):
        yield f"the cluster's only name is {CLUSTER_NAME}"
    if pattern.pattern_type is PatternType.LITERAL and pattern.name != ANY_NAME and pattern.name.endswith("*"):
        yield "a literal name ends with *, which is no wildcard there: a prefixed pattern is meant"
    if entry.host != ANY_HOST and not _is_address(entry.host):
        yield f"{entry.host} is not an address: Kafka compares addresses, never names or networks"
    elif entry.host != address_in_java(entry.host):
        yield f"brokers write this address {address_in_java(entry.host)}, and compare it as a text"
    name = entry.principal.partition(":")[2]
    if name.endswith("*") and entry.principal != ANYBODY:
        yield f"a principal has no wildcards: {ANYBODY} alone is everybody"
    kind = entry.principal.partition(":")[0]
    if kind != "User" and kind.lower() == "user":
        yield f"the type of a principal is spelled User, not {kind}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _opens(rule: AclBinding) -> str | None:
    pattern, entry = rule.pattern, rule.entry
    if entry.permission is Permission.DENY or entry.principal != ANYBODY or entry.host != ANY_HOST:
        return None
    is_wide = pattern.name == ANY_NAME or pattern.resource_type is ResourceType.CLUSTER
    if is_wide and entry.operation in _DANGEROUS:
        what = "the cluster" if pattern.resource_type is ResourceType.CLUSTER else f"every {pattern.resource_type.word}"
        return f"everybody may {entry.operation.word} {what}, from anywhere"
    return None


def _together(rules: Sequence[AclBinding]) -> Iterator[Finding]:
    """Return rules that another one shadows or makes redundant, each once, with the first that does it."""
    numbers: dict[ResourcePattern, dict[AclEntry, int]] = {}
    for number, rule in enumerate(rules):
        numbers.setdefault(rule.pattern, {}).setdefault(rule.entry, number)
    lengths: dict[ResourceType, set[int]] = {}
    for pattern in numbers:
        if pattern.pattern_type is PatternType.PREFIXED:
            lengths.setdefault(pattern.resource_type, set()).add(len(pattern.name))
    for rule in rules:
        rule_number = numbers[rule.pattern][rule.entry]
        covering = [
            (entry.permission is Permission.ALLOW, number, AclBinding(pattern, entry))
            for pattern in _covering_patterns(rule.pattern, lengths.get(rule.pattern.resource_type, ()))
            if pattern in numbers
            for entry in _covering_entries(rule.entry)
            if (number := numbers[pattern].get(entry, rule_number)) != rule_number
        ]
        for _, number, other in sorted(covering, key=lambda ranked: ranked[:2]):
            if other.entry.permission is not rule.entry.permission:
                because = f"it is never reached: {AclRow.of(other)}"
                yield Finding(Problem.SHADOWED, because, AclRow.of(rule), AclRow.of(other))
                break
            if number < rule_number or not _covers(rule, other):
                because = f"another rule says as much: {AclRow.of(other)}"
                yield Finding(Problem.REDUNDANT, because, AclRow.of(rule), AclRow.of(other))
                break


def _covers(wide: AclBinding, narrow: AclBinding) -> bool:
    """Whether a rule matches whatever another one matches."""
    return wide.pattern in _covering_patterns(narrow.pattern, (len(wide.pattern.name),)) and wide.entry in set(
        _covering_entries(narrow.entry)
    )


def _covering_patterns(narrow: ResourcePattern, lengths: Iterable[int]) -> Iterator[ResourcePattern]:
    """Return the patterns that match whatever this one matches; prefixes of these lengths are tried."""
    kind, name = narrow.resource_type, narrow.name
    any_name = ResourcePattern(kind, ANY_NAME, PatternType.LITERAL)
    yield any_name
    if narrow != any_name:
        if narrow.pattern_type is PatternType.LITERAL:
            yield narrow
        for length in lengths:
            if length <= len(name):
                yield ResourcePattern(kind, name[:length], PatternType.PREFIXED)


def _covering_entries(narrow: AclEntry) -> Iterator[AclEntry]:
    """Return the entries that match whatever this one matches: those that deny it, or say the same."""
    for permission in {Permission.DENY, narrow.permission}:
        operations = {narrow.operation, AclOperation.ALL}
        if permission is Permission.ALLOW:
            operations.update(IMPLIED.get(narrow.operation, ()))
        for principal in {narrow.principal, ANYBODY}:
            for host in {narrow.host, ANY_HOST}:
                for operation in operations:
                    yield AclEntry(principal, host, operation, permission)
