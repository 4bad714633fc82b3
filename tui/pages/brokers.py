"""Brokers: who is there, what each carries, and what each one's absence costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.admin.watch.frame import BrokerRegistration
from engine.common.model import BrokerInfo
from tui.board import Board
from tui.cells import NO_DATA, Cell, Column, Tone, tinted
from tui.lines import Line, line
from tui.location import Location
from tui.pages.page import Page, View, why_empty
from tui.table_model import Rows
from tui.units import count, percent, short_count, size, span


@dataclass(frozen=True, slots=True)
class BrokerItem:
    """One broker, alive or only wanted by partitions."""

    id: int
    info: BrokerInfo | None
    is_controller: bool
    leaders: int
    replicas: int
    preferred: int
    skew: float | None
    missing: int
    at_risk: int
    bytes: int | None
    disk: float | None
    up_s: float | None
    in_per_s: float | None
    trouble: str

    @property
    def state(self) -> str:
        if self.info is None:
            return "down"
        return "silent" if self.trouble else "up"

    @property
    def host(self) -> str:
        return self.info.endpoints[0].host if self.info is not None and self.info.endpoints else ""


def items_of(board: Board) -> list[BrokerItem]:
    """Return all brokers that are alive or hold replicas."""
    frame = board.frame
    if frame is None or frame.cluster is None:
        return []
    total, live = board.total, {broker.id: broker for broker in board.brokers}
    mean = sum(total.replicas.values()) / len(live) if live else 0
    rates = board.samples[-1].in_by_broker if board.samples else {}
    found = []
    for broker in board.broker_ids:
        words = frame.words.get(broker)
        found.append(
            BrokerItem(
                broker,
                live.get(broker),
                broker == frame.cluster.controller_id,
                total.leaders[broker],
                total.replicas[broker],
                total.preferred[broker],
                total.replicas[broker] / mean - 1 if mean else None,
                total.missing[broker],
                total.at_risk[broker],
                board.broker_bytes(broker),
                board.broker_disk_share(broker),
                _up_s(frame.registrations.get(broker), frame.at_ms),
                rates.get(broker),
                words.trouble if words is not None else "",
            )
        )
    return found


def _up_s(registration: BrokerRegistration | None, now_ms: int) -> float | None:
    if registration is None or registration.created_ms is None:
        return None
    return max(0.0, (now_ms - registration.created_ms) / 1000)


def _state(item: BrokerItem) -> Cell:
    tones = {"up": Tone.GOOD, "down": Tone.BAD, "silent": Tone.BAD}
    return Cell(item.state, tones[item.state])


def _skew(item: BrokerItem) -> Cell:
    if item.skew is None:
        return NO_DATA
    text = f"{item.skew * 100:+.0f} %"
    return Cell(text, Tone.WARN if abs(item.skew) > 0.1 else Tone.QUIET)


def _leaders(item: BrokerItem) -> Cell:
    return Cell(count(item.leaders), Tone.WARN if item.leaders < item.preferred else Tone.PLAIN)


def _disk(item: BrokerItem) -> Cell:
    return NO_DATA if item.disk is None else tinted(item.disk, percent(item.disk), bad_from=0.85)


def _stop(item: BrokerItem) -> Cell:
    """What happens to partitions if this broker stops."""
    if item.info is None:
        return Cell("is down", Tone.BAD)
    return Cell(f"hurts {count(item.at_risk)}", Tone.WARN) if item.at_risk else Cell("safe", Tone.GOOD)


COLUMNS = (
    Column("broker", "BROKER", lambda i: Cell(str(i.id), Tone.STRONG), lambda i: i.id, is_figure=True),
    Column("state", "STATE", _state, lambda i: i.state, width=6),
    Column(
        "is_controller", "ROLE", lambda i: Cell("controller" if i.is_controller else "", Tone.ACCENT),
        lambda i: i.is_controller, rank=3, width=10,
    ),
    Column("rack", "RACK", lambda i: Cell((i.info.rack or "") if i.info else ""),
           lambda i: i.info.rack if i.info else None, rank=6),
    Column("host", "HOST", lambda i: Cell(i.host), lambda i: i.host or None, rank=7, is_wide=True),
    Column("leaders", "LEADERS", _leaders, lambda i: i.leaders, is_figure=True),
    Column("preferred", "PREFERRED", lambda i: Cell(count(i.preferred), Tone.QUIET), lambda i: i.preferred, rank=5,
           is_figure=True),
    Column("replicas", "REPLICAS", lambda i: Cell(count(i.replicas)), lambda i: i.replicas, is_figure=True),
    Column("skew", "SKEW", _skew, lambda i: i.skew, rank=4, is_figure=True, width=6),
    Column("missing", "MISSED BY", lambda i: tinted(i.missing, count(i.missing)), lambda i: i.missing, rank=1,
           is_figure=True),
    Column("stop", "IF STOPPED", _stop, lambda i: i.at_risk, rank=2, width=10),
    Column("in_per_s", "IN/S", lambda i: NO_DATA if i.in_per_s is None else Cell(short_count(i.in_per_s)),
           lambda i: i.in_per_s, rank=5, is_figure=True, width=6),
    Column("bytes", "ON DISK", lambda i: NO_DATA if i.bytes is None else Cell(size(i.bytes)), lambda i: i.bytes,
           rank=4, is_figure=True, width=9),
    Column("disk", "FULL", _disk, lambda i: i.disk, rank=4, is_figure=True, width=5),
    Column("up_s", "UP FOR", lambda i: NO_DATA if i.up_s is None else Cell(span(i.up_s)), lambda i: i.up_s, rank=6,
           is_figure=True, width=7),
)  # fmt: skip


def _rows(view: View) -> Rows:
    return Rows(
        COLUMNS,
        items_of(view.board),
        lambda item: item.id,
        lambda item: f"{item.id} {item.state} {item.host} {(item.info.rack or '') if item.info else ''}",
        "no broker is known: nobody has told of any so far",
    )


def _summary(view: View, width: int) -> list[Line]:
    board = view.board
    if not board.has_metadata:
        return [line((why_empty(view, "brokers"), Tone.QUIET))]
    total = board.total
    live, known = len(board.live), len(board.broker_ids)
    alive = (f"{live} of {known} up", Tone.GOOD if live == known else Tone.BAD)
    share = total.not_preferred / total.partitions if total.partitions else 0
    back = (
        (f"{count(total.not_preferred)} partitions ({percent(share)}) not led by their preferred replica", Tone.WARN)
        if total.not_preferred
        else ("every leader is the preferred one", Tone.QUIET)
    )
    hint = ("   E gives them back", Tone.QUIET) if total.not_preferred else ""
    return [line(alive, "   ", back, hint), *_cause(board)]


def _cause(board: Board) -> list[Line]:
    """Say which broker is behind the under-replication."""
    total = board.total
    worst = [(broker, missed) for broker, missed in total.missing.most_common(3) if missed]
    if not worst:
        return []
    told = ", ".join(f"broker {broker} from {count(missed)}" for broker, missed in worst)
    return [line((f"missing of {count(total.under_replicated)} under-replicated: {told}", Tone.BAD))]


def _command(view: View, items: Sequence[Any]) -> list[str]:
    return ["brokers", "describe", *(str(item.id) for item in items)]


PAGE = Page(
    "brokers",
    _rows,
    _summary,
    lambda view, item: Location("partitions", broker=item.id),
    lambda view, item: bool(item.info is None or item.trouble or item.missing),
    _command,
)
