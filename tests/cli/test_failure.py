"""Every kind of failure has its exit code, one line, and a hint if there is one."""

from __future__ import annotations

import pytest

from cli.exit_codes import ExitCode
from cli.framework.failure import EXIT_CODES, Failure, failure_of, interrupted
from engine.admin.cluster.advice import advice_for
from engine.admin.cluster.errors import BadRequest, FailureKind, NotFound, Refused, StillUnderWay, Unreachable
from engine.common.errors import (
    ConfigError,
    ErrorCode,
    KafkaError,
    OperationError,
    RemoteProtocolError,
    StorageError,
)
from engine.kafka.client.errors import ConnectFailed, RequestTimedOut
from engine.kafka.zk.errors import (
    BadVersion,
    ConnectionLost,
    ControllerMoved,
    NoAuth,
    NodeExists,
    SessionLost,
    ZnodeFormatError,
)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BadRequest("no", where="here"), ExitCode.USAGE, "no: here"),
        (NotFound("no topic"), ExitCode.USAGE, "no topic"),
        (Unreachable("nobody", where="h:1"), ExitCode.UNREACHABLE, "nobody: h:1"),
        (StillUnderWay("not yet"), ExitCode.UNDER_WAY, "not yet"),
        (Refused(ErrorCode.POLICY_VIOLATION), ExitCode.REFUSED, "POLICY_VIOLATION"),
        (
            Refused(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.", where="topic t"),
            ExitCode.REFUSED,
            "Topic 't' already exists (TOPIC_ALREADY_EXISTS): topic t",
        ),
        (KafkaError(ErrorCode.CORRUPT_MESSAGE, "bad crc"), ExitCode.REFUSED, "bad crc (CORRUPT_MESSAGE)"),
        (ConfigError("Invalid value"), ExitCode.USAGE, "Invalid value"),
        (OperationError("no java", hint="get one"), ExitCode.USAGE, "no java"),
        (StorageError("locked", path="/d"), ExitCode.USAGE, "locked: /d"),
        (FileNotFoundError(2, "No such file or directory", "f"), ExitCode.USAGE, "no such file or directory: f"),
        (PermissionError(13, "Permission denied", "f"), ExitCode.USAGE, "permission denied: f"),
        (ConnectionRefusedError(111, "Connection refused"), ExitCode.UNREACHABLE, "[Errno 111] Connection refused"),
        (ConnectFailed("cannot connect", address="h:1"), ExitCode.UNREACHABLE, "cannot connect: h:1"),
        (RequestTimedOut("no answer", address="h:1"), ExitCode.UNREACHABLE, "no answer: h:1"),
        (RemoteProtocolError("garbage"), ExitCode.UNREACHABLE, "meaningless answer: garbage"),
        (TimeoutError(), ExitCode.UNREACHABLE, "no answer in time"),
        (ConnectionLost(), ExitCode.UNREACHABLE, "broke"),
        (SessionLost(), ExitCode.UNREACHABLE, "session with ZooKeeper is over"),
        (NoAuth(path="/x"), ExitCode.REFUSED, "/x"),
        (NodeExists(path="/x"), ExitCode.REFUSED, "exists"),
        (BadVersion(path="/x"), ExitCode.REFUSED, "version"),
        (ControllerMoved("moved"), ExitCode.REFUSED, "moved"),
        (ZnodeFormatError("/x", "not JSON"), ExitCode.BAD_ANSWER, "/x: not JSON"),
        (KeyError("x"), ExitCode.INTERNAL, "internal error: KeyError: 'x'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_code_and_line(error: Exception, code: ExitCode, line: str) -> None:
    failure = failure_of(error)
    assert failure.code is code
    assert line in failure.line
    assert "\n" not in failure.line
    assert set(failure.as_json()) >= {"code", "kind", "message", "hint"}


def test_after_a_change_was_accepted_running_out_of_time_means_still_under_way() -> None:
    assert failure_of(TimeoutError(), is_accepted=True).code is ExitCode.UNDER_WAY


def test_every_kind_of_the_engine_has_a_code() -> None:
    assert set(EXIT_CODES) == set(FailureKind)


def test_control_characters_of_an_answer_do_not_reach_the_terminal() -> None:
    failure = failure_of(Refused(ErrorCode.INVALID_CONFIG, "a\x1b[31mb\nc"))
    assert failure.line.startswith(r"a\x1b[31mb\nc")


def test_an_interruption_says_what_goes_on() -> None:
    failure = interrupted(["the deletion goes on"])
    assert (failure.code, failure.hint) == (ExitCode.INTERRUPTED, "the deletion goes on")


@pytest.mark.parametrize("code", list(ErrorCode))
def test_a_retriable_refusal_says_to_try_again_at_least(code: ErrorCode) -> None:
    assert not code.is_retriable or advice_for(code)


def test_codes_are_documented() -> None:
    assert {int(code) for code in ExitCode} >= {0, 1, 2, 3, 4, 5, 130}
    assert all(code.meaning for code in ExitCode)
    assert isinstance(failure_of(ValueError("x")), Failure)


def test_a_hint_on_a_setting_is_one_that_can_be_followed() -> None:
    unknown = Refused(ErrorCode.INVALID_CONFIG, "Unknown topic config name: retenton.ms", where="topic orders")
    look = "see keys and their values with: klamm configs describe"
    assert failure_of(unknown).hint == f"did you mean retention.ms? {look} --topic orders --all"
    for where, options in (("topic orders", "--topic orders"), ("broker 2", "--broker 2")):
        refused = Refused(ErrorCode.INVALID_CONFIG, "Invalid value", where=where)
        assert failure_of(refused).hint == f"{look} {options} --all"
    assert advice_for(ErrorCode.INVALID_CONFIG, "not a supported log level", "broker-logger 0") is None
    fixed = "Cannot update these configs dynamically: Set(log.dirs)"
    assert "server.properties" in str(advice_for(ErrorCode.INVALID_REQUEST, fixed, "broker 0"))


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        (
            "Topic already has 3 partitions.",
            "topics only grow; see how many there are now: klamm topics describe orders",
        ),
        ("Number of partitions must be larger than 0.", "give at least one"),
    ],
)
def test_a_number_of_partitions_that_cannot_be_is_compared_with_the_topics_own(message: str, hint: str) -> None:
    refused = Refused(ErrorCode.INVALID_PARTITIONS, message, where="topic orders")
    assert failure_of(refused).hint == hint


def test_a_name_that_collides_is_not_told_which_letters_are_allowed() -> None:
    message = "Topic 'a_b' collides with existing topics: a.b"
    assert "choose a name" in str(advice_for(ErrorCode.INVALID_TOPIC_EXCEPTION, message))
    assert "up to 249" in str(advice_for(ErrorCode.INVALID_TOPIC_EXCEPTION, "contains one or more characters"))


def test_of_several_errors_one_that_is_known_is_told() -> None:
    lost = ExceptionGroup("side by side", [ValueError("a bug"), ExceptionGroup("within", [Unreachable("nobody")])])
    assert failure_of(lost).line == "nobody"
    assert failure_of(ExceptionGroup("side by side", [ValueError("a bug")])).code is ExitCode.INTERNAL
