"""The plan file: Kafka's reassignment JSON in an envelope with what a reviewer and ``plan apply`` need.

``kafka-reassign-partitions`` takes the same file: it ignores the key ``klamm``. The same plan always gives the same
bytes, a partition a line. Reading is strict: an unknown, missing or senseless key is an error that names its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.common.collection import collector_paused
from engine.common.model import TopicPartition
from plans.errors import BadPlanFile
from plans.json_values import LATER, JsonValueError, from_json, schema_of, to_json
from plans.options import PlanOptions, Strategy
from plans.problem import Problem
from plans.score import Score

FORMAT = 1
"""The format of the envelope; a reader refuses any other."""

KAFKA_VERSION = 1
"""The version of Kafka's own file."""

ANY_LOG_DIR = "any"
"""The log dir that lets the broker choose."""


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """Where one partition's replicas should be, in the terms of Kafka's file; ``log_dirs`` has one name per replica."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def dir_changes(before: PlanEntry, after: PlanEntry) -> tuple[str, ...]:
    """Return what a partition changes inside brokers: ``2: /a → /b`` for each replica that goes to another log dir."""
    old = dict(zip(before.replicas, before.log_dirs, strict=True))
    pairs = zip(after.replicas, after.log_dirs, strict=True)
    changed = [(broker, path) for broker, path in pairs if path not in (ANY_LOG_DIR, old.get(broker, path))]
    return tuple(f"{broker}: {old[broker]} → {path}" for broker, path in changed)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The content of ``klamm``. ``rollback`` has the entries that lead back; ``throttle`` is in bytes a second.

    ``sizes`` are the bytes of the partitions that change, in their order; empty if no sizes were known.
    """

    format: int
    cluster_id: str | None
    input_digest: str
    strategy: Strategy
    options: PlanOptions
    score: Score
    rollback: tuple[PlanEntry, ...]
    throttle: int | None
    sizes: tuple[int | None, ...] = field(default=(), metadata=LATER)


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A whole plan. ``partitions`` are those that change, by topic and partition."""

    version: int
    partitions: tuple[PlanEntry, ...]
    klamm: Envelope

    @property
    def names_log_dirs(self) -> bool:
        """Whether a replica is to go to a certain log dir."""
        return any(path != ANY_LOG_DIR for entry in self.partitions for path in entry.log_dirs)


@dataclass(frozen=True, slots=True)
class MadePlan:
    """A plan, the problem it solves, the replicas of every partition after it, and notes for users."""

    plan: PlanFile
    problem: Problem
    after: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]


def sizes_of(plan: PlanFile) -> dict[TopicPartition, int | None]:
    """Return the bytes of the plan's partitions, as far as its file has them."""
    return {entry.name: size for entry, size in zip(plan.partitions, plan.klamm.sizes, strict=False)}


def plan_document(plan: PlanFile) -> dict[str, Any]:
    """Return the plan as plain JSON values."""
    with collector_paused():
        document: dict[str, Any] = to_json(plan)
    return document


def encode_plan(plan: PlanFile) -> str:
    """Return the plan's text: every key a line, every partition and every row of a broker a line."""
    return f"{_text(plan_document(plan), '')}\n"


def decode_plan(text: str) -> PlanFile:
    """Return the plan that ``text`` holds.

    Raises:
        BadPlanFile: it is not a plan, or not of this format; the message names the place in the document.
    """
    with collector_paused():
        document = _document(text)
        try:
            plan: PlanFile = from_json(PlanFile, document)
        except JsonValueError as error:
            raise BadPlanFile(str(error), hint=_HINT) from error
    _check_entries("partitions", plan.partitions)
    _check_entries("klamm.rollback", plan.klamm.rollback)
    if plan.klamm.throttle is not None and plan.klamm.throttle < 1:
        raise BadPlanFile(f"klamm.throttle: must be 1 or more bytes a second, not {plan.klamm.throttle}", hint=_HINT)
    if plan.klamm.sizes and len(plan.klamm.sizes) != len(plan.partitions):
        raise BadPlanFile("klamm.sizes: must have one for each partition", hint=_HINT)
    if {entry.name for entry in plan.partitions} != {entry.name for entry in plan.klamm.rollback}:
        raise BadPlanFile("klamm.rollback: it does not have the partitions of the plan", hint=_HINT)
    return plan


def plan_schema() -> dict[str, Any]:
    """Return the JSON schema of plan files."""
    schema = schema_of(PlanFile)
    schema["properties"]["version"] = {"const": KAFKA_VERSION}
    schema["$defs"]["Envelope"]["properties"]["format"] = {"const": FORMAT}
    schema["$defs"]["Envelope"]["properties"]["throttle"]["minimum"] = 1
    entry = schema["$defs"]["PlanEntry"]["properties"]
    entry["partition"]["minimum"] = 0
    entry["replicas"].update(minItems=1, uniqueItems=True)
    entry["replicas"]["items"]["minimum"] = 0
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A plan of klamm: Kafka's reassignment file with an envelope",
        **schema,
    }


def plan_schema_text() -> str:
    """Return the schema as ``docs/reference/plan.schema.json`` has it."""
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"


_HINT = "write it with klamm plan … --out FILE, and do not edit it by hand"


def _document(text: str) -> object:
    """Read the JSON and check both versions first: the rest of another format is unknown."""
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadPlanFile(f"not JSON: {error}", hint=_HINT) from error
    if not isinstance(document, dict):
        raise BadPlanFile("not a JSON object", hint=_HINT)
    envelope = document.get("klamm")
    if envelope is None and "partitions" in document:
        raise BadPlanFile("klamm: missing, this is a plain reassignment file", hint="klamm reassign execute takes it")
    if isinstance(envelope, dict) and envelope.get("format") != FORMAT:
        format_text = json.dumps(envelope.get("format"))
        hint = "use the version of klamm that wrote it, or plan again"
        raise BadPlanFile(f"klamm.format: this klamm reads format {FORMAT}, not {format_text}", hint=hint)
    if document.get("version") != KAFKA_VERSION:
        raise BadPlanFile(f"version: must be {KAFKA_VERSION}, not {json.dumps(document.get('version'))}", hint=_HINT)
    return document


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return document


def _check_entries(place: str, entries: tuple[PlanEntry, ...]) -> None:
    seen: dict[TopicPartition, int] = {}
    for index, entry in enumerate(entries):
        here = f"{place}[{index}]"
        if entry.name in seen:
            raise BadPlanFile(f"{here}: {entry.name} is in {place}[{seen[entry.name]}] already", hint=_HINT)
        seen[entry.name] = index
        if entry.partition < 0:
            raise BadPlanFile(f"{here}.partition: {entry.partition} is not a partition", hint=_HINT)
        if not entry.replicas or min(entry.replicas) < 0:
            raise BadPlanFile(f"{here}.replicas: must have at least one broker id, and none below 0", hint=_HINT)
        if len(set(entry.replicas)) < len(entry.replicas):
            raise BadPlanFile(f"{here}.replicas: a broker appears twice", hint=_HINT)
        if len(entry.log_dirs) != len(entry.replicas):
            raise BadPlanFile(f"{here}.log_dirs: must have one for each replica", hint=_HINT)


def _text(value: object, indent: str) -> str:
    """Objects of the envelope take several lines; a list of objects has one object per line."""
    deeper = f"{indent} "
    if isinstance(value, Mapping) and any(isinstance(item, (Mapping, list)) for item in value.values()):
        lines = [f"{deeper}{_plain(key)}: {_text(member, deeper)}" for key, member in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "[\n" + ",\n".join(f"{deeper}{_plain(item)}" for item in value) + f"\n{indent}]"
    return _plain(value)


_plain = json.JSONEncoder(ensure_ascii=False).encode
