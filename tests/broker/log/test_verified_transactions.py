"""A log takes the first records of a transaction only with the approval of the transaction's coordinator (KIP-890)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_folders import NOW_MS, StandIn, data_batch, marker_batch, open_log

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.log import Log
from engine.broker.log.log_append import AppendResult
from engine.broker.log.preparation import Preparation
from engine.broker.log.producer_sequences import Verification
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.layout import ATTRIBUTES, NO_SEQUENCE, TRANSACTIONAL_BIT

E = ErrorCode


class Verifying(StandIn):
    def __init__(self) -> None:
        super().__init__()
        self.verifies_transactions = True


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "t-0", environment=Verifying())


def send(
    log: Log,
    sequence: int,
    *,
    epoch: int = 0,
    with_approval: Verification | None = None,
    transactional: bool = True,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ErrorCode:
    batch = data_batch(b"v", producer=(1, epoch, sequence), transactional=transactional, timestamp_ms=NOW_MS)
    try:
        if with_approval is None:
            log.append_as_leader(batch, 0, origin=origin)
        else:
            with with_approval:
                log.append_as_leader(batch, 0, origin=origin)
    except KafkaError as error:
        return error.code
    return E.NONE


def begin(log: Log, sequence: int = 0, epoch: int = 0) -> Verification | None:
    return log.producers.begin_verification(1, sequence, epoch, NOW_MS)


def end(log: Log, epoch: int = 0) -> None:
    log.append_as_leader(marker_batch(1, epoch, commit=False), 0, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_without_approval_no_transaction_begins(log: Log, origin: AppendOrigin) -> None:
    assert send(log, 0, origin=origin) is E.INVALID_TXN_STATE
    approval = begin(log)
    assert send(log, 0, origin=origin) is E.INVALID_TXN_STATE, "the coordinator has not answered"
    assert log.log_end_offset == 0
    assert send(log, 0, with_approval=approval, origin=origin) is E.NONE


def test_an_open_transaction_needs_no_further_approval(log: Log) -> None:
    assert send(log, 0, with_approval=begin(log)) is E.NONE
    assert begin(log, 1) is None
    assert send(log, 1) is E.NONE
    assert log.producers.verifications == {}


def test_an_approval_ends_with_the_transaction(log: Log) -> None:
    """It may have been given for the transaction before (ABA)."""
    old = begin(log)
    end(log)
    assert send(log, 0, with_approval=old) is E.INVALID_TXN_STATE
    new = begin(log)
    assert send(log, 0, with_approval=old) is E.INVALID_TXN_STATE
    assert send(log, 0, with_approval=new) is E.NONE


def test_a_zombies_record_after_the_marker_is_refused(log: Log) -> None:
    assert send(log, 0, with_approval=begin(log)) is E.NONE
    end(log)
    assert send(log, 1) is E.INVALID_TXN_STATE
    end(log, epoch=1)
    assert send(log, 1, with_approval=begin(log, 1)) is E.INVALID_PRODUCER_EPOCH


def test_what_is_not_transactional_or_not_a_leaders_business_needs_none(log: Log) -> None:
    assert send(log, 0, transactional=False) is E.NONE
    batch = data_batch(b"v", producer=(2, 0, 0), transactional=True, timestamp_ms=NOW_MS)
    stamped = open_log(log.dir.parent / "leader-0")
    stamped.append_as_leader(batch, 0)
    stamped.append_as_leader(data_batch(b"v", producer=(2, 0, 1), transactional=True, timestamp_ms=NOW_MS), 0)
    records = stamped.read(1, 1_000, limit_offset=2, min_one_batch=True).records
    assert records is not None
    assert log.append_as_follower(memoryview(bytearray(records.read()))).last_offset == 1


def test_a_later_batch_does_not_come_before_the_first(log: Log) -> None:
    """Two requests wait for the coordinator. Without a memory of the producer any sequence would do."""
    first, second = begin(log, 5), begin(log, 6)
    assert first is second
    assert send(log, 6, with_approval=second) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 5, with_approval=first) is E.NONE
    assert send(log, 6) is E.NONE


def test_the_first_of_a_later_epoch_counts_anew(log: Log) -> None:
    begin(log, 0)
    approval = begin(log, 3, epoch=1)
    assert send(log, 3, epoch=1, with_approval=approval) is E.NONE


def test_an_approval_that_nobody_uses_is_forgotten(log: Log) -> None:
    begin(log)
    log.producers.expire(NOW_MS + 86_400_000 - 1)
    assert 1 in log.producers.verifications
    log.producers.expire(NOW_MS + 86_400_000)
    assert log.producers.verifications == {}


def test_a_broker_that_does_not_verify_takes_all(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    assert send(log, 0) is E.NONE


def test_the_next_transaction_of_a_known_producer_needs_its_approval_too(log: Log) -> None:
    assert send(log, 0, with_approval=begin(log)) is E.NONE
    log.append_as_leader(marker_batch(1, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    assert send(log, 1) is E.INVALID_TXN_STATE
    approval = begin(log, 1)
    assert send(log, 1) is E.INVALID_TXN_STATE, "the coordinator has not answered"
    assert begin(log, 0) is approval
    assert send(log, 1, with_approval=approval) is E.OUT_OF_ORDER_SEQUENCE_NUMBER, "an earlier one waits"


def test_a_known_producers_transaction_uses_its_approval_up(log: Log) -> None:
    assert send(log, 0, with_approval=begin(log)) is E.NONE
    log.append_as_leader(marker_batch(1, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    assert send(log, 1, with_approval=begin(log, 1)) is E.NONE
    assert not log.producers.verifications


# -- the short path


class LongWay(Log):
    """Looks at each transactional batch as if it were an odd one."""

    __slots__ = ()

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        may_prepare: bool = False,
        prepared: Preparation | None = None,
    ) -> AppendResult:
        if records[ATTRIBUTES + 1] & TRANSACTIONAL_BIT:
            return self._append_the_long_way(records, leader_epoch, origin, may_prepare, prepared)
        return super().append_as_leader(
            records, leader_epoch, origin=origin, may_prepare=may_prepare, prepared=prepared
        )


@pytest.mark.parametrize("verifies", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("approval", ["approved", "asked", "none"])
@pytest.mark.parametrize(("epoch", "sequence"), [(0, 0), (1, 0), (2, 0), (1, NO_SEQUENCE)])
def test_a_coordinators_offsets_are_taken_as_on_the_long_way(
    tmp_path: Path, verifies: bool, is_open: bool, approval: str, epoch: int, sequence: int
) -> None:
    seen: list[object] = []
    for kind in (Log, LongWay):
        environment = Verifying()
        environment.verifies_transactions = verifies
        log = open_log(tmp_path / f"{kind.__name__}-0", environment=environment)
        log.__class__ = kind
        first = data_batch(b"a", producer=(1, 1, 0), transactional=True, timestamp_ms=NOW_MS)
        said = [_sent(log, first, "approved", (1, NO_SEQUENCE, 1), AppendOrigin.COORDINATOR)]
        if not is_open:
            said.append(_appended(log, marker_batch(1, 1, commit=True), AppendOrigin.COORDINATOR))
        batch = data_batch(b"b", b"c", producer=(1, epoch, sequence), transactional=True, timestamp_ms=NOW_MS)
        said.append(_sent(log, batch, approval, (1, NO_SEQUENCE, epoch), AppendOrigin.COORDINATOR))
        said += [_shown(log), [path.read_bytes() for path in log.dir.glob("*.log")]]
        seen.append(said)
        log.close()
    assert seen[0] == seen[1]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "send",
                "send",
                "send",
                "send",
                "offsets",
                "offsets",
                "commit",
                "commit",
                "abort",
                "replicate",
                "roll",
                "cut",
            ]
        ),
        st.sampled_from([1, 1, 2]),  # producer id
        st.sampled_from([0, 0, 0, 0, 1]),  # epoch
        st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1]),  # distance from the sequence that is next
        st.sampled_from(["approved", "approved", "approved", "asked", "none"]),
        st.sampled_from([1, 1, 1, 0]),  # coordinator epoch
        st.sampled_from([True, True, True, False]),  # is transactional
    ),
    max_size=40,
)


@given(timestamp_type=st.sampled_from(["CreateTime", "LogAppendTime"]), verifies=st.booleans(), steps=STEPS)
def test_the_short_path_of_transactions_does_what_the_long_one_does(
    tmp_path_factory: pytest.TempPathFactory,
    timestamp_type: str,
    verifies: bool,
    steps: list[tuple[str, int, int, int, str, int, bool]],
) -> None:
    config = LogConfig(message_timestamp_type=timestamp_type)
    logs = []
    for number in range(2):
        environment = Verifying()
        environment.verifies_transactions = verifies
        logs.append(open_log(tmp_path_factory.mktemp("short") / "t-0", config, environment))
        if number:
            logs[-1].__class__ = LongWay
    for step, producer_id, epoch, distance, approval, coordinator_epoch, transactional in steps:
        known = logs[0].producers.producers.get(producer_id)
        sequence = max(0, (0 if known is None or known.next_sequence < 0 else known.next_sequence) + distance)
        seen = []
        for log in logs:
            if step == "send":
                batch = data_batch(
                    b"v",
                    b"w",
                    producer=(producer_id, epoch, sequence),
                    transactional=transactional,
                    timestamp_ms=NOW_MS,
                )
                seen.append(_sent(log, batch, approval, (producer_id, sequence, epoch)))
            elif step == "offsets":
                batch = data_batch(b"v", producer=(producer_id, epoch, 0), transactional=True, timestamp_ms=NOW_MS)
                wanted = (producer_id, NO_SEQUENCE, epoch)
                seen.append(_sent(log, batch, approval, wanted, AppendOrigin.COORDINATOR))
            elif step in ("commit", "abort"):
                batch = marker_batch(producer_id, epoch, commit=step == "commit", coordinator_epoch=coordinator_epoch)
                seen.append(_appended(log, batch, AppendOrigin.COORDINATOR))
            elif step == "replicate":
                log.update_high_watermark(log.log_end_offset)
            elif step == "roll":
                log.roll()
            else:
                log.truncate_to(max(log.log_end_offset - 2, 0))
                log.build_producers()
            seen.append(_shown(log))
        assert seen[: len(seen) // 2] == seen[len(seen) // 2 :], step
    contents = [b"".join(path.read_bytes() for path in sorted(log.dir.glob("*.log"))) for log in logs]
    assert contents[0] == contents[1]
    for log in logs:
        log.close()


def _sent(
    log: Log,
    batch: memoryview,
    approval: str,
    wanted: tuple[int, int, int],
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> object:
    producer_id, sequence, epoch = wanted
    asked = None if approval == "none" else log.producers.begin_verification(producer_id, sequence, epoch, NOW_MS)
    if asked is None or approval == "asked":
        return _appended(log, batch, origin)
    with asked:
        return _appended(log, batch, origin)


def _appended(log: Log, batch: memoryview, origin: AppendOrigin) -> object:
    try:
        result = log.append_as_leader(batch, 0, origin=origin)
    except KafkaError as error:
        return error.code
    return [getattr(result, name) for name in result.__slots__]


def _shown(log: Log) -> object:
    return (
        log.last_stable_offset,
        log.first_unstable_offset,
        {
            i: [getattr(producer, name) for name in producer.__slots__]
            for i, producer in log.producers.producers.items()
        },
        {
            i: (verification.lowest_sequence, verification.producer_epoch)
            for i, verification in log.producers.verifications.items()
        },
        log.collect_aborted_transactions(0, log.log_end_offset),
    )
