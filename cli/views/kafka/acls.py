"""What kafka-acls prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cli.output.report import KafkaText
from engine.kafka.acls import AclBinding, ResourcePattern


def listed_text(rules: Sequence[AclBinding], principals: Sequence[str]) -> KafkaText:
    """``--list``: rules by resource; for each principal that was named, those about it."""
    if not principals:
        return KafkaText(_by_resource("Current", rules))
    blocks = [
        f"ACLs for principal `{principal}`\n"
        + _by_resource("Current", [rule for rule in rules if rule.entry.principal == principal])
        for principal in principals
    ]
    return KafkaText("".join(blocks))


def changed_text(changes: Mapping[str, Sequence[AclBinding]]) -> KafkaText | None:
    """``--add``, and ``--remove``, which says nothing; None for a dry run."""
    if not changes.keys() <= {"added", "removed"}:
        return None
    return KafkaText(_by_resource("Adding", changes.get("added", ())))


def _by_resource(word: str, rules: Sequence[AclBinding]) -> str:
    by_pattern: dict[ResourcePattern, list[AclBinding]] = {}
    for rule in rules:
        by_pattern.setdefault(rule.pattern, []).append(rule)
    text = ""
    for pattern, of_pattern in by_pattern.items():
        resource = (
            f"ResourcePattern(resourceType={_upper(pattern.resource_type.word)}, name={pattern.name}, "
            f"patternType={pattern.pattern_type.value})"
        )
        entries = "\n".join(f"\t{_entry(rule)}" for rule in of_pattern)
        text += f"{word} ACLs for resource `{resource}`: \n {entries} \n\n"
    return text


def _entry(rule: AclBinding) -> str:
    entry = rule.entry
    return (
        f"(principal={entry.principal}, host={entry.host}, operation={_upper(entry.operation.word)}, "
        f"permissionType={entry.permission.value.upper()})"
    )


def _upper(word: str) -> str:
    return word.replace("-", "_").upper()
