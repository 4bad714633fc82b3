"""A log takes the first records of a transaction only with the approval of the transaction's coordinator (KIP-890)."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_folders import NOW_MS, StandIn, data_batch, marker_batch, open_log

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.log import Log
from engine.broker.log.producer_entry import Verification
from engine.common.errors import ErrorCode, KafkaError

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
            with with_approval.presented():
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
    found = stamped.read(1, 1_000, limit_offset=2, min_one_batch=True).records
    assert found is not None
    assert log.append_as_follower(memoryview(bytearray(found.read()))).last_offset == 1


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
