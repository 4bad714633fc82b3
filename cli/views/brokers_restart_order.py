"""Which broker to restart next: a row per broker in the order of restarting, with the reasons to wait."""

from __future__ import annotations

from cli.exit_codes import ExitCode
from cli.output.report import Advice, Column, Kind, Report, Section, Table, Tone
from engine.admin.analysis.restart_order import RestartAdvice, RestartBoard, Verdict
from engine.common.quantities import plural

_TONES = {
    Verdict.SAFE.words: Tone.GOOD, Verdict.LAST.words: Tone.GOOD, Verdict.DONE.words: Tone.QUIET,
    Verdict.DOWN.words: Tone.BAD, Verdict.NO.words: Tone.BAD,
}  # fmt: skip
_ORDER = (
    Verdict.NEEDED, Verdict.SAFE, Verdict.LAST, Verdict.WAIT, Verdict.NO, Verdict.UNKNOWN, Verdict.DOWN, Verdict.DONE,
)  # fmt: skip

_ONE_REPLICA = (
    "a partition with one replica has no leader while its broker restarts: no waiting helps. "
    "Give it more replicas (klamm plan factor), or restart the broker all the same once that is its only reason"
)


def _verdict_tone(value: object) -> Tone | None:
    return _TONES.get(str(value), Tone.WARNING)


_COLUMNS = (
    Column("broker", Kind.NUMBER),
    Column("verdict", tone=_verdict_tone),
    Column("missed_by", Kind.NUMBER, title="Out of ISR"),
    Column("would_refuse_writes", Kind.NUMBER, title="Refuse"),
    Column("would_have_no_leader", Kind.NUMBER, title="No leader"),
    Column("registered_ms", Kind.DURATION_MS, title="Registered for"),
    Column("reasons", falls_below=True),
)


def restart_order_report(board: RestartBoard) -> Report:
    """One row per broker, the next one to restart first."""
    brokers = sorted(board.brokers, key=lambda broker: (broker.broker != board.next_broker, *_place(broker)))
    rows = [_row(broker) for broker in brokers]
    data = [
        {
            **dict(zip((column.name for column in _COLUMNS), row, strict=True)),
            "reasons": broker.reasons,
            "is_next": broker.broker == board.next_broker,
        }
        for broker, row in zip(brokers, rows, strict=True)
    ]
    shown = [(row[0], broker.verdict.words, *row[2:]) for broker, row in zip(brokers, rows, strict=True)]
    is_known = all(broker.verdict is not Verdict.UNKNOWN for broker in brokers)
    is_done = bool(brokers) and all(broker.verdict is Verdict.DONE for broker in brokers)
    if is_done:
        note = "all brokers have been restarted"
    elif board.next_broker is not None:
        note = f"restart broker {board.next_broker} next"
    else:
        note = "no broker can be restarted now" if is_known else "it is not known whether a broker can be restarted now"
    notes = [note]
    if down := [str(broker.broker) for broker in board.brokers if broker.verdict is Verdict.DOWN]:
        it_never, its = ("it never comes", "its") if len(down) == 1 else ("they never come", "their")
        first = f"{_how_to_start(board)} {plural('broker', len(down))} {', '.join(down)} first; if {it_never} back, "
        notes.append(Advice(f"{first}move {its} replicas away: klamm plan decommission {','.join(down)}"))
    if any(broker.only_here and broker.verdict is not Verdict.DONE for broker in brokers):
        notes.append(_ONE_REPLICA)
    code = ExitCode.DONE if is_done or board.next_broker is not None else ExitCode.BAD_ANSWER
    return Report(data, Table(_COLUMNS, rows), (Section(body=Table(_COLUMNS, shown)),), tuple(notes), code)


def _how_to_start(board: RestartBoard) -> str:
    """A process that is frozen must be continued: it has its port, so no other can start there."""
    if board.hung:
        return f"no answer at {', '.join(board.hung)}, where connections are taken: continue or start"
    return "start or continue" if board.may_hang else "start"


def _place(advice: RestartAdvice) -> tuple[int, float, int]:
    return _ORDER.index(advice.verdict), -(advice.registered_s or 0.0), advice.broker


def _row(advice: RestartAdvice) -> tuple[object, ...]:
    registered_ms = None if advice.registered_s is None else round(advice.registered_s * 1000)
    return (
        advice.broker,
        advice.verdict,
        advice.missed_by,
        advice.would_stop,
        advice.would_go,
        registered_ms,
        "; ".join(advice.reasons),
    )
