"""Access rules as a file in a repository: YAML (or JSON), and the changes that make a cluster equal to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from engine.admin.acls.values import AclRow, rule_of
from engine.admin.cluster.errors import BadRequest
from engine.kafka.acls import ANY_HOST, CLUSTER_NAME, AclBinding
from engine.runtime.input_files import name_of, read_input

_WORDS = [field.name for field in fields(AclRow)]
_DEFAULTS = {"pattern_type": "literal", "host": ANY_HOST, "permission": "allow"}


@dataclass(frozen=True, slots=True)
class AclDiff:
    """Which rules of a file a cluster lacks, and which others it has."""

    missing: tuple[AclBinding, ...]
    extra: tuple[AclBinding, ...]


def compare(wanted: Sequence[AclBinding], present: Sequence[AclBinding]) -> AclDiff:
    """Return how a cluster differs from a file."""

    def only(these: Sequence[AclBinding], those: Sequence[AclBinding]) -> tuple[AclBinding, ...]:
        return tuple(sorted(set(these) - set(those), key=lambda rule: rule.sort_key))

    return AclDiff(only(wanted, present), only(present, wanted))


def file_text(rules: Sequence[AclBinding]) -> str:
    """Return the YAML of rules, which depends on nothing else, so that a file changes only with its rules."""
    import yaml

    text: str = yaml.safe_dump(
        {"acls": [asdict(AclRow.of(rule)) for rule in rules]}, sort_keys=False, allow_unicode=True, width=4096
    )
    return text


def read_acl_file(path: Path) -> list[AclBinding]:
    """Read a file of rules; ``-`` is stdin. An operation may be a list of them.

    Raises:
        BadRequest: it is not such a file; the message says which rule and why.
        NotFound: there is no such file.
    """
    import yaml

    where = name_of(path)
    text = read_input(path)
    try:
        # libyaml reads the same six times faster, where it is installed.
        content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise BadRequest(f"not YAML: {' '.join(str(error).split())}", where=where) from error
    rows = content.get("acls") if isinstance(content, Mapping) else content
    if not isinstance(rows, list):
        raise BadRequest(
            "no list of rules under the key acls", where=where, hint="an export of the rules is such a file"
        )
    return [rule for number, row in enumerate(rows, 1) for rule in _rules(row, f"{where}, rule {number}")]


def _rules(row: object, where: str) -> list[AclBinding]:
    if not isinstance(row, Mapping):
        raise BadRequest("not a rule", where=where, hint=f"its keys: {', '.join(_WORDS)}")
    unknown = [str(key) for key in row if key not in _WORDS]
    if unknown:
        raise BadRequest(f"unknown key {unknown[0]}", where=where, hint=f"its keys: {', '.join(_WORDS)}")
    given = _DEFAULTS | ({"name": CLUSTER_NAME} if row.get("resource_type") == "cluster" else {}) | dict(row)
    missing = [word for word in _WORDS if word not in given]
    if missing:
        raise BadRequest(f"{missing[0]} is missing", where=where)
    operations = given["operation"] if isinstance(given["operation"], list) else [given["operation"]]
    try:
        return [
            rule_of(AclRow(**{word: str(given[word]) for word in _WORDS} | {"operation": str(operation)}))
            for operation in operations
        ]
    except BadRequest as error:
        raise BadRequest(error.message, where=where, hint=error.hint) from error
