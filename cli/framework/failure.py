"""Turns an exception into a message for the user and an exit code. The only place for both.

A traceback is for people who fix klamm: it is shown only with ``KLAMM_DEBUG=1``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.exit_codes import ExitCode
from cli.output.values import escape_controls

if TYPE_CHECKING:
    from engine.admin.cluster.errors import AdminError

EXIT_CODES = {
    "usage": ExitCode.USAGE,
    "not_found": ExitCode.USAGE,
    "unreachable": ExitCode.UNREACHABLE,
    "authentication": ExitCode.UNREACHABLE,
    "refused": ExitCode.REFUSED,
    "authorization": ExitCode.REFUSED,
    "under_way": ExitCode.UNDER_WAY,
}
"""Exit code of each ``engine.admin.cluster.errors.FailureKind``."""

_NETWORK_ERRNOS = frozenset(
    {errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EPIPE}
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as the user sees it. ``kafka_error`` is the name of Kafka's code if the cluster refused with one."""

    code: ExitCode
    kind: str
    message: str
    where: str | None = None
    hint: str | None = None
    kafka_error: str | None = None
    principal: str | None = None
    operation: str | None = None
    resource: str | None = None
    """Who lacks which right on what, in the words of ``klamm acls``."""

    @property
    def line(self) -> str:
        """What, and where: one line without control characters."""
        text = self.message.strip().rstrip(".")
        if self.kafka_error is not None and self.kafka_error != text:
            text = f"{text} ({self.kafka_error})"
        return escape_controls(f"{text}: {self.where}" if self.where else text)

    def as_json(self) -> dict[str, object]:
        fields: dict[str, object] = {"code": int(self.code), "kind": self.kind, "message": self.line, "hint": self.hint}
        if self.kafka_error is not None:
            fields["kafka_error"] = self.kafka_error
        if self.resource is not None:
            fields |= {"principal": self.principal, "operation": self.operation, "resource": self.resource}
        return fields


def failure_of(
    error: BaseException, *, is_accepted: bool = False, pasteable: Callable[[str], str] | None = None
) -> Failure:
    """Return what the user sees of ``error``.

    Args:
        is_accepted: the cluster had accepted a change before it happened.
        pasteable: completes a command that the error advises.
    """
    if isinstance(error, BaseExceptionGroup):
        # If several tasks failed side by side, one error is shown, preferably one that is not a bug.
        failures = [failure_of(each, is_accepted=is_accepted, pasteable=pasteable) for each in error.exceptions]
        return next((failure for failure in failures if failure.code is not ExitCode.INTERNAL), failures[0])
    if isinstance(error, TimeoutError):
        return _timed_out(error, is_accepted)
    if isinstance(error, (BrokenPipeError, ConnectionError)):
        return Failure(ExitCode.UNREACHABLE, "unreachable", str(error) or "the connection was lost")
    if isinstance(error, OSError):
        return _os_failure(error)
    return _engine_failure(error, pasteable) or _internal(error)


def interrupted(left: list[str], *, by_term: bool = False) -> Failure:
    """Return the failure of a command that Ctrl-C or TERM ended; ``left`` says what continues without it."""
    hint = "; ".join(left) if left else None
    if by_term:
        return Failure(ExitCode.TERMINATED, "terminated", "ended by TERM", hint=hint)
    return Failure(ExitCode.INTERRUPTED, "interrupted", "interrupted", hint=hint)


def _engine_failure(error: BaseException, pasteable: Callable[[str], str] | None) -> Failure | None:
    from engine.admin.cluster import errors as admin
    from engine.common import errors as common
    from engine.kafka.client.errors import NetworkError

    if isinstance(error, admin.AdminError):
        return _admin_failure(error, pasteable)
    if isinstance(error, common.KafkaError):
        return _admin_failure(admin.Refused(error.code, error.message), pasteable)
    if isinstance(error, common.ConfigError):
        return Failure(ExitCode.USAGE, "usage", str(error))
    if isinstance(error, common.OperationError):
        return Failure(ExitCode.USAGE, "usage", str(error), hint=error.hint)
    if isinstance(error, common.StorageError):
        return Failure(ExitCode.USAGE, "usage", str(error), error.path)
    if isinstance(error, NetworkError):
        return Failure(ExitCode.UNREACHABLE, "unreachable", str(error))
    if isinstance(error, common.CoordinationError):
        return _zookeeper_failure(error)
    if isinstance(error, common.RemoteProtocolError):
        hint = "does a Kafka broker listen there?"
        return Failure(ExitCode.UNREACHABLE, "unreachable", f"meaningless answer: {error}", hint=hint)
    return None


def _admin_failure(error: AdminError, pasteable: Callable[[str], str] | None) -> Failure:
    from cli.framework.remedies import spelled
    from engine.admin.cluster.errors import Refused

    missing: tuple[str | None, ...] = ()
    if isinstance(error, Refused) and error.right is not None:
        missing = (error.principal, error.right.operation.word, error.right.resource)
    return Failure(
        EXIT_CODES[error.kind],
        error.kind.value,
        spelled(error.message),
        None if error.where is None else spelled(error.where),
        None if error.hint is None else spelled(error.hint, pasteable),
        error.code.name if isinstance(error, Refused) else None,
        *missing,
    )


def _zookeeper_failure(error: BaseException) -> Failure:
    """A refusal by ZooKeeper is the cluster's; an unreadable answer is a bad one; anything else means unreachable."""
    from engine.common.errors import said_by
    from engine.kafka.zk import errors as zk

    message = said_by(error)
    if isinstance(error, zk.NotAdmitted):
        return Failure(ExitCode.UNREACHABLE, "authentication", message, hint=error.hint)
    if isinstance(error, zk.NoAuth) or (isinstance(error, zk.MultiFailed) and isinstance(error.error, zk.NoAuth)):
        hint = "log in to ZooKeeper as an identity that the ACL names: klamm zk get --acl shows it"
        return Failure(ExitCode.REFUSED, "authorization", message, hint=hint)
    if isinstance(error, (zk.NodeExists, zk.BadVersion, zk.MultiFailed, zk.ControllerMoved)):
        return Failure(
            ExitCode.REFUSED, "refused", message, hint="another client has changed it meanwhile: look, then try again"
        )
    if isinstance(error, zk.ZnodeFormatError):
        hint = f"look at it: klamm zk get {error.path} --raw"
        if str(error.path).startswith("/config/"):
            hint += "; brokers take it for no settings, and write it anew with a change that is made --via wire"
        return Failure(ExitCode.BAD_ANSWER, "bad_answer", message, hint=hint)
    return Failure(ExitCode.UNREACHABLE, "unreachable", message)


def _timed_out(error: BaseException, is_accepted: bool) -> Failure:
    message = str(error) or "no answer in time"
    if is_accepted:
        return Failure(ExitCode.UNDER_WAY, "under_way", "accepted, but not done in time", hint="ask again later")
    return Failure(ExitCode.UNREACHABLE, "unreachable", message, hint="give it more time with --timeout SECONDS")


def _os_failure(error: OSError) -> Failure:
    from engine.common.errors import said_by

    message = (error.strerror or said_by(error)).lower()
    where = str(error.filename) if error.filename is not None else None
    if error.errno in _NETWORK_ERRNOS:
        return Failure(ExitCode.UNREACHABLE, "unreachable", message, where)
    return Failure(ExitCode.USAGE, "usage", message, where)


def _internal(error: BaseException) -> Failure:
    text = str(error)
    message = f"internal error: {type(error).__name__}" + (f": {text}" if text else "")
    hint = "this is a bug in klamm: run it again with KLAMM_DEBUG=1 and report what it prints"
    return Failure(ExitCode.INTERNAL, "internal", message, hint=hint)
