"""Which broker can be restarted next, and why the others cannot: for the dashboard and the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from engine.admin.analysis.tallies import Tallies, Tally
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.hung import absent_addresses, hung_addresses, hung_after_s
from engine.admin.cluster.remedies import NAME_ZOOKEEPER
from engine.admin.cluster.target import Side
from engine.admin.watch.frame import Frame, LinkState, Stage
from engine.admin.watch.live_feed import first_frame_with
from engine.common.acl import AclOperation, ResourceType
from engine.common.model import NO_CONTROLLER, NO_LEADER
from engine.common.quantities import counted

STALE_MS = 15_000
"""Data older than this call nothing safe."""


class Verdict(StrEnum):
    """Whether a broker can be stopped now."""

    DOWN = "down"
    SAFE = "safe"
    LAST = "safe_better_last"
    """It is the controller: if it is not the last to restart, control moves twice."""
    NEEDED = "needed"
    """A log dir of it failed, and nothing else has to end first: it comes back with a restart."""
    WAIT = "wait"
    """Something else in the cluster has to end first."""
    NO = "no"
    """Partitions would refuse writes, or have no leader."""
    UNKNOWN = "unknown"
    """Something that must be known is not known."""
    DONE = "done"
    """It has been restarted in this round."""

    @property
    def words(self) -> str:
        """As a person reads it."""
        return "safe, better last" if self is Verdict.LAST else self.value


@dataclass(frozen=True, slots=True)
class RestartAdvice:
    """One broker.

    Attributes:
        reasons: why it is not simply safe, the gravest first. missed_by: under-replicated partitions that miss it.
        would_stop: partitions that would refuse writes with acks=all without it. would_go: partitions that nobody could
        lead without it. registered_s: for how long it has been registered; it may have run for longer, because each new
        session with ZooKeeper registers it again. None: not reported. only_here: of the partitions of
        ``would_go``, those that have no other replica.
    """

    broker: int
    verdict: Verdict
    reasons: tuple[str, ...]
    missed_by: int
    would_stop: int
    would_go: int
    registered_s: float | None
    only_here: int = 0

    @property
    def may_be_restarted(self) -> bool:
        return self.verdict in (Verdict.SAFE, Verdict.LAST)


@dataclass(frozen=True, slots=True)
class RestartBoard:
    """All brokers by id, and which one to restart next; None: none.

    It is the safe one that has been registered longest, since a restart registers a broker again. ``hung`` are the
    addresses of brokers that are down while their processes hang. ``may_hang``: another one's may, because nobody gave
    its address.
    """

    brokers: tuple[RestartAdvice, ...]
    next_broker: int | None
    hung: tuple[str, ...] = ()
    may_hang: bool = False


def restart_board(frame: Frame, tally: Tally, *, since_ms: int | None = None) -> RestartBoard:
    """Return for each broker whether it can be restarted.

    ``since_ms`` is when a round of restarts began, by ZooKeeper's clock: brokers that registered later are done.
    """
    live = frozenset() if frame.cluster is None else frame.cluster.live_broker_ids
    known = sorted({*live, *tally.leaders, *tally.preferred, *tally.missing})
    down = tuple(broker for broker in known if broker not in live)
    waiting, unknown = _waiting(frame, tally, down), _unknown(frame, tally)
    brokers = tuple(
        _done_or(_advice(frame, tally, broker, waiting, unknown, down), frame, since_ms) for broker in known
    )
    ready = [broker for broker in brokers if broker.may_be_restarted]
    ready.sort(key=lambda row: (row.verdict is Verdict.LAST, -(row.registered_s or 0.0), row.broker))
    return RestartBoard(brokers, ready[0].broker if ready else None)


def _advice(
    frame: Frame, tally: Tally, broker: int, waiting: tuple[str, ...], unknown: tuple[str, ...], down: tuple[int, ...]
) -> RestartAdvice:
    cluster = frame.cluster
    stop, go = tally.would_stop[broker], tally.would_go[broker]
    own = []
    if go:
        own.append(f"{counted(go, 'partition')} would have no leader{_only_here(tally, broker)}")
    if stop:
        own.append(f"{counted(stop, 'partition')} would refuse writes with acks=all")
    is_controller = cluster is not None and cluster.controller_id == broker
    verdict: Verdict
    reasons: tuple[str, ...]
    if cluster is None or broker not in cluster.live_broker_ids:
        verdict, reasons = Verdict.DOWN, ()
    elif unknown:
        verdict, reasons = Verdict.UNKNOWN, unknown
    elif _has_failed_dir(frame, broker) and not _waiting(frame, tally, down, but_for=broker):
        # What a restart would stop now it would stop later, too: nothing is left to wait for.
        verdict, reasons = Verdict.NEEDED, (f"broker {broker} has a failed log dir: repair it, then restart it", *own)
    elif own:
        verdict, reasons = Verdict.NO, (*own, *waiting)
    elif waiting:
        verdict, reasons = Verdict.WAIT, waiting
    else:
        verdict = Verdict.LAST if is_controller else Verdict.SAFE
        reasons = ("it is the controller",) if is_controller else ()
    return RestartAdvice(
        broker, verdict, reasons, tally.missing[broker], stop, go, _registered_s(frame, broker), tally.only_here[broker]
    )


def _done_or(advice: RestartAdvice, frame: Frame, since_ms: int | None) -> RestartAdvice:
    """Return the advice, or that a broker which has registered since then is done, if it need not restart again."""
    registration = frame.registrations.get(advice.broker)
    is_due = advice.verdict in (Verdict.DOWN, Verdict.NEEDED)
    if since_ms is None or is_due or registration is None or registration.created_ms is None:
        return advice
    return replace(advice, verdict=Verdict.DONE, reasons=()) if registration.created_ms >= since_ms else advice


def _only_here(tally: Tally, broker: int) -> str:
    """Say of how many partitions that no other broker has a replica: they go with every restart."""
    count = tally.only_here[broker]
    if not count:
        return ""
    example = tally.one_only_here[broker]
    if count == 1:
        return f" ({example} has no other replica)"
    which = f"{count} of them" if count < tally.would_go[broker] else "they"
    return f" ({which} have no other replica, such as {example})"


def _has_failed_dir(frame: Frame, broker: int) -> bool:
    words = frame.words.get(broker)
    return words is not None and bool(words.offline_log_dirs)


def _waiting(frame: Frame, tally: Tally, down: tuple[int, ...], *, but_for: int = NO_LEADER) -> tuple[str, ...]:
    """Return what has to end before any broker is stopped; without partitions that only ``but_for`` can bring back."""
    reasons = []
    if down:
        reasons.append(f"broker {', '.join(map(str, down))} {'is' if len(down) == 1 else 'are'} down")
    if tally.leaderless > tally.unelected[but_for]:
        reasons.append(
            f"{counted(tally.leaderless, 'partition')} have no leader".replace("partition have", "partition has")
        )
    if tally.under_replicated and not tally.missing.keys() <= {but_for}:
        who = ", ".join(str(broker) for broker, _ in tally.missing.most_common(3) if broker not in down)
        catching = f" (waiting for {who})" if who else ""
        reasons.append(f"{counted(tally.under_replicated, 'partition')} under-replicated{catching}")
    if tally.moving:
        reasons.append(f"{counted(tally.moving, 'partition')} being reassigned")
    if frame.link(Side.ZOOKEEPER).state not in (LinkState.CONNECTED, LinkState.UNUSED):
        # Nobody would lead what the broker leads now, and it could not register again.
        reasons.append("ZooKeeper does not answer")
    if frame.cluster is not None and frame.cluster.controller_id == NO_CONTROLLER:
        reasons.append("there is no controller")
    silent = sorted(broker for broker, words in frame.words.items() if words.trouble)
    if silent:
        reasons.append(f"broker {', '.join(map(str, silent))} does not answer")
    return tuple(reasons)


def _unknown(frame: Frame, tally: Tally) -> tuple[str, ...]:
    """Return why the effect of stopping a broker is unknown."""
    reasons = []
    age_ms = frame.age_ms(Stage.METADATA)
    if age_ms is None:
        return ("partitions are not known yet",)
    oldest_ms = max((frame.at_ms - at_ms for at_ms in frame.read_at_ms.values()), default=age_ms)
    if max(age_ms, oldest_ms) > STALE_MS:
        reasons.append(f"the states of partitions are {max(age_ms, oldest_ms) // 1000} s old")
    elif all(link.state is not LinkState.CONNECTED for link in frame.links.values()):
        reasons.append("the cluster cannot be reached")
    elif frame.link(Side.WIRE).state in (LinkState.LOST, LinkState.DENIED):
        # Which log dirs have failed, and who is silent, only brokers tell.
        reasons.append("no broker answers")
    hidden = [right for right in frame.denied if right.operation is AclOperation.DESCRIBE]
    if any(right.resource_type is ResourceType.CLUSTER for right in hidden):
        reasons.append("moves are hidden, and topics may be")
    if topics := [right.name for right in hidden if right.resource_type is ResourceType.TOPIC]:
        reasons.append(
            f"{counted(len(topics), 'topic')} {'is' if len(topics) == 1 else 'are'} hidden, such as {topics[0]}"
        )
    if tally.no_min:
        reasons.append(f"min.insync.replicas of {counted(tally.no_min, 'partition')} is not known")
    return tuple(reasons)


def _registered_s(frame: Frame, broker: int) -> float | None:
    registration = frame.registrations.get(broker)
    if registration is None or registration.created_ms is None:
        return None
    return max(0, frame.at_ms - registration.created_ms) / 1000


_NEEDED: Final = (
    Stage.MEMBERS, Stage.METADATA, Stage.REASSIGNMENTS, Stage.SETTINGS, Stage.PROBES, Stage.LOG_DIRS,
)  # fmt: skip
"""What a verdict rests on; log dirs show topics that lists hide. Where one cannot be read, the verdict says so."""


async def read_restart_order(cluster: Cluster, since_ms: int | None = None) -> RestartBoard:
    """Watch a cluster until each fact was read once, or could not be, and judge every broker.

    It watches over connections of its own; ``cluster`` learns which rights were missing. The caller bounds the time.

    Args:
        since_ms: brokers that registered later, by ZooKeeper's clock, have been restarted already.

    Raises:
        BadRequest: ``since_ms`` is given without ZooKeeper, which alone says when brokers registered.
        Unreachable: no side of the cluster that the target names answers, or lets klamm in.
    """
    if since_ms is not None and not cluster.target.may_ask_zookeeper:
        raise BadRequest("only ZooKeeper says when brokers registered", hint=NAME_ZOOKEEPER)
    frame = await first_frame_with(cluster.target, _NEEDED, note_denied=cluster.note_denied)
    board = restart_board(frame, Tallies().of_frame(frame), since_ms=since_ms)
    down = sum(advice.verdict is Verdict.DOWN for advice in board.brokers)
    if not down:
        return board
    live = () if frame.cluster is None else frame.cluster.brokers
    hung = await hung_addresses(cluster.target, live, hung_after_s(cluster.timeout_s))
    return replace(board, hung=hung, may_hang=len(absent_addresses(cluster.target, live)) < down)
