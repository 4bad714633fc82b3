"""A state machine without a broker: the test controls its clock, timers and stores."""

from __future__ import annotations

import itertools

from virtual_time import ManualClock

from engine.broker.coordinator.groups.driver import TimerWheel
from engine.broker.coordinator.groups.group import Group
from engine.broker.coordinator.groups.loading import GroupLoader
from engine.broker.coordinator.groups.member import Joining, JoinResult, MemberIdentity, Syncing, SyncResult
from engine.broker.coordinator.groups.outbox import StoreGroup, TimerKey
from engine.broker.coordinator.groups.records import group_record
from engine.broker.coordinator.groups.settings import GroupSettings
from engine.broker.coordinator.groups.state_machine import GroupMachine
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.protocol.records.encode import encode_batch

SESSION_MS = 10_000
REBALANCE_MS = 30_000
INITIAL_DELAY_MS = 3_000
IBP = parse_metadata_version("3.9")


class World:
    """One group, one machine, and a clock that stands still until it is moved."""

    def __init__(self, **settings: int) -> None:
        self.clock = ManualClock()
        numbers = itertools.count(1)
        self.machine = GroupMachine(GroupSettings(**settings), self.clock, lambda: str(next(numbers)))
        self.group = Group("g", self.clock.now_ms())
        self.wheel: TimerWheel[TimerKey] = TimerWheel()
        self.stores: list[StoreGroup] = []
        self.log: list[bytes] = []
        """What was written of the group, batch by batch."""
        self.store_error: ErrorCode | None = ErrorCode.NONE
        """How stores end; None: they have not ended yet."""

    def join(self, member_id: str = "", **options: object) -> list[JoinResult]:
        """Send a JoinGroup; the list gets the answer as soon as there is one."""
        answers: list[JoinResult] = []
        values: dict[str, object] = {
            "client_id": "c",
            "client_host": "/h",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": (("range", b"r"), ("rr", b"x")),
        }
        self.machine.join(self.group, Joining(member_id, **(values | options)), answers.append)  # type: ignore[arg-type]
        self.carry_out()
        return answers

    def sync(
        self, member_id: str, generation_id: int, assignments: dict[str, bytes] | None = None, **options: str
    ) -> list[SyncResult]:
        """Send a SyncGroup."""
        answers: list[SyncResult] = []
        syncing = Syncing(member_id, generation_id, assignments or {}, **options)
        self.machine.sync(self.group, syncing, answers.append)
        self.carry_out()
        return answers

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> ErrorCode:
        error = self.machine.heartbeat(self.group, member_id, instance_id, generation_id)
        self.carry_out()
        return error

    def leave(self, member_id: str, instance_id: str | None = None) -> ErrorCode:
        error = self.machine.leave(self.group, MemberIdentity(member_id, instance_id))
        self.carry_out()
        return error

    def wait(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        end_ms = self.clock.monotonic_ms() + ms
        while True:
            next_ms = self.wheel.next_ms()
            if next_ms is None or next_ms > end_ms:
                break
            self.clock.advance(max(0, next_ms - self.clock.monotonic_ms()))
            for key in self.wheel.take_due(self.clock.monotonic_ms()):
                self.machine.timer_is_due(self.group, key)
                self.carry_out()
        self.clock.advance(end_ms - self.clock.monotonic_ms())

    def carry_out(self) -> None:
        """Do what the outbox asks for."""
        outbox = self.machine.outbox
        while not outbox.is_empty:
            replies, outbox.replies = outbox.replies, []
            timers, outbox.timers = outbox.timers, {}
            stores, outbox.stores = outbox.stores, []
            for key, delay_ms in timers.items():
                if delay_ms is None:
                    self.wheel.stop(key)
                else:
                    self.wheel.start(key, self.clock.monotonic_ms() + delay_ms)
            for reply, result in replies:
                reply(result)
            for store in stores:
                self.stores.append(store)
                if self.store_error in (None, ErrorCode.NONE):
                    record = group_record(self.group, store.assignments, self.clock.now_ms(), IBP)
                    self.log.append(encode_batch([record], base_offset=len(self.log)))
                if self.store_error is not None:
                    self.machine.stored(self.group, store, self.store_error)

    def end_stores(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """End the stores that were made to wait."""
        stores, self.stores = self.stores, []
        for store in stores:
            self.machine.stored(self.group, store, error)
            self.carry_out()

    def move(self) -> None:
        """Let another coordinator take over the log. Callers waiting at this one are told so."""
        self.machine.unload(self.group)
        self.carry_out()
        self.end_stores()
        loader = GroupLoader(TopicPartition("__consumer_offsets", 0))
        for batch in self.log:
            for _ in loader.read(batch):
                pass
        for _ in loader.finish(self.clock.now_ms()):
            pass
        loaded = list(loader.loaded.values())
        self.group = loaded[0] if loaded else Group("g", self.clock.now_ms())
        self.machine.loaded(self.group)
        self.carry_out()

    def stable(self, count: int = 2, **options: object) -> list[str]:
        """Bring the group to a stable generation of this many members; return their ids, the leader first."""
        joins = [self.join(**options) for _ in range(count)]
        self.wait(2 * INITIAL_DELAY_MS)
        ids = [answers[0].member_id for answers in joins]
        self.sync_all(ids)
        return ids

    def sync_all(self, ids: list[str]) -> list[SyncResult]:
        """Let all members sync, the leader last. Each gets its id as its assignment."""
        generation_id = self.group.generation_id
        leader_id = self.group.leader_id
        assert leader_id is not None
        answers = [self.sync(m, generation_id) for m in ids if m != leader_id]
        answers.append(self.sync(leader_id, generation_id, {m: m.encode() for m in ids}))
        return [answer[0] for answer in answers]
