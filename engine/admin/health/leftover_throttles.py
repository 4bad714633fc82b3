"""Throttles that serve no reassignment any more, and how to remove them. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from engine.admin.cluster.remedies import Do, Give, Operation, Parameter, Part, Phrase, Words
from engine.admin.health.report import EXAMPLES_MAX, HealthFacts
from engine.admin.reassignment.throttle_settings import RATES, REPLICA_LISTS, is_mark_alone, marked_rates, read_list
from engine.common.snapshot import ClusterSnapshot


def has_throttles(snapshot: ClusterSnapshot) -> bool:
    """Whether any topic or broker is throttled, needed or not."""
    of_topics = (topic.configs for topic in snapshot.topics if topic.configs)
    return any(not configs.keys().isdisjoint(REPLICA_LISTS) for configs in of_topics) or any(
        not configs.keys().isdisjoint(RATES) for configs in snapshot.broker_configs.values()
    )


@dataclass(frozen=True, slots=True)
class Throttle:
    """A setting that throttles a topic, a broker, or all brokers (neither)."""

    key: str
    value: str
    topic: str | None = None
    broker: int | None = None
    is_dead: bool = False
    is_ours: bool = False
    """Whether klamm has set it."""

    def __str__(self) -> str:
        """Say what is set, without the entries by which klamm knows its own: they name no replica."""
        if self.key not in REPLICA_LISTS or not (throttled := read_list(self.value)).marks:
            return f"{self.whose}: {self.key}={self.value}"
        return (
            f"{self.whose}: {self.key}={','.join((*throttled.others, *throttled.ours)) or 'no replica'} (set by klamm)"
        )

    @property
    def whose(self) -> str:
        if self.topic is not None:
            return f"topic {self.topic}"
        return "all brokers" if self.broker is None else f"broker {self.broker}{', dead' if self.is_dead else ''}"


def leftover_throttles(facts: HealthFacts, moving_topics: Set[str]) -> list[Throttle]:
    """Return throttles that serve no reassignment: on topics that do not move, and on brokers while nothing moves.

    While something moves, a topic may keep just the mark of a rate that brokers still have. While a plan is carried
    out, nothing is left behind: between two waves nothing moves, and the next one needs the throttle. Nor is anything
    called so while nobody knows what moves: to remove it would let a move take all of the network.

    Args:
        moving_topics: those with partitions that are being reassigned.
    """
    if facts.plan is not None or not facts.are_moves_known:
        return []
    is_anything_moving = bool(moving_topics or facts.listed_reassignments)
    throttles = [
        Throttle(key, topic.configs[key], topic=topic.name, is_ours=bool(read_list(topic.configs[key]).marks))
        for topic in facts.snapshot.topics
        if topic.configs and topic.name not in moving_topics
        for key in REPLICA_LISTS
        if topic.configs.get(key)
        if not is_anything_moving or not is_mark_alone(topic.configs[key])
    ]
    if is_anything_moving:
        return throttles
    snapshot = facts.snapshot
    ours = marked_rates(topic.configs for topic in snapshot.topics if topic.configs)
    for broker, configs in sorted(snapshot.broker_configs.items(), key=lambda item: -1 if item[0] is None else item[0]):
        is_dead = broker is not None and broker not in snapshot.live_broker_ids
        throttles += [
            Throttle(key, configs[key], broker=broker, is_dead=is_dead, is_ours=configs[key] in ours[key])
            for key in RATES
            if key in configs
        ]
    return throttles


def how_to_remove(throttles: Sequence[Throttle]) -> Words:
    """Return how to remove throttles: klamm's all at once, those of others by name."""
    others: dict[str, list[Throttle]] = {}
    for throttle in throttles:
        if not throttle.is_ours:
            others.setdefault(throttle.whose, []).append(throttle)
    deletions = [_deletion(of_one) for of_one in others.values()]
    steps: list[Words] = deletions[:EXAMPLES_MAX]
    if len(deletions) > EXAMPLES_MAX:
        steps.append(f"and so on, for {len(deletions) - EXAMPLES_MAX} more")
    if any(throttle.is_ours for throttle in throttles):
        steps.insert(0, Phrase(Operation.VERIFY_REASSIGNMENT, " removes klamm's"))
    return Phrase(*[part for step in steps for part in ("; ", step)][1:])


def _deletion(throttles: Sequence[Throttle]) -> Words:
    """Return how to delete the settings of one topic or broker."""
    throttle = throttles[0]
    if throttle.topic is not None:
        whose: Part = Do(Operation.ALTER_TOPIC_CONFIGS, throttle.topic)
    elif throttle.broker is not None:
        whose = Do(Operation.ALTER_BROKER_CONFIGS, str(throttle.broker))
    else:
        whose = Operation.ALTER_BROKER_DEFAULTS
    via = (" ", Give(Parameter.VIA, "zookeeper")) if throttle.is_dead else ()
    return Phrase(whose, " ", Give(Parameter.DELETE_CONFIG, ",".join(throttle.key for throttle in throttles)), *via)
