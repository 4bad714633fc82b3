"""Random commits, replication and changes of coordinator: an answered commit is never lost and never goes back."""

from __future__ import annotations

import asyncio
from typing import Any

from coordinator_world import CoordinatorWorld
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import SOAK
from virtual_time import in_virtual_time

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition

GROUPS = ("a", "b")
PARTITIONS = (TopicPartition("read", 0), TopicPartition("read", 1))

NAMES = [(group, partition) for group in GROUPS for partition in PARTITIONS]
STEP = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from(NAMES)),
    st.tuples(st.just("commit with others"), st.sampled_from(NAMES)),
    st.tuples(st.just("commit with others"), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["replicate", "hold", "go on", "refuse", "time out"]), st.none()),
    st.tuples(st.just("move"), st.integers(0, 3)),
)


class History:
    """What was sent and answered, by group and partition."""

    def __init__(self, world: CoordinatorWorld) -> None:
        self.world = world
        self.number = 0
        self.sent: dict[Any, list[tuple[int, list[ErrorCode]]]] = {name: [] for name in NAMES}

    def commit(self, name: tuple[str, TopicPartition], *, is_alone: bool) -> None:
        self.number += 1
        answers = self.world.commit(name[0], self.number, partition=name[1], is_alone=is_alone)
        self.sent[name].append((self.number, answers))

    def check(self) -> None:
        """What a client reads is the last answered commit, or a later one that is still possible."""
        for name, sent in self.sent.items():
            answered = [number for number, answers in sent if answers == [ErrorCode.NONE]]
            seen = self.world.committed(*name) or 0
            assert seen >= max(answered, default=0), f"{name}: {seen} is read, {answered[-1]} was answered"
            assert seen in (0, *(number for number, _ in sent))
            for _, answers in sent:
                assert len(answers) <= 1, "a commit is answered once"


@settings(max_examples=80 * SOAK, deadline=None)
@given(st.lists(STEP, min_size=5, max_size=60))
@in_virtual_time
async def test_no_commit_that_was_answered_is_lost(steps: list[tuple[str, Any]]) -> None:
    world = CoordinatorWorld()
    await world.lead()
    history = History(world)
    log = world.partition.log
    for step, of in steps:
        if step.startswith("commit"):
            history.commit(of, is_alone=step == "commit")
        elif step == "replicate":
            world.replicate()
        elif step in ("hold", "go on"):
            world.partition.is_replicated_at_once = step == "go on"
            world.partition.refusal = None
        elif step == "refuse":
            world.partition.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        elif step == "time out":
            # The client gets REQUEST_TIMED_OUT, but the record may be replicated later.
            await asyncio.sleep(6)
        else:
            await world.move(min(log.high_watermark + of, log.log_end_offset))
        history.check()
    world.partition.refusal = None
    await asyncio.sleep(0)
    await world.move()
    history.check()
    assert all(answers for sent in history.sent.values() for _, answers in sent), "nobody waits forever"
    await world.stop()
