"""What a plan does, drawn: its sentence, the score card, brokers before and after, waves, the largest moves. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.admin.analysis.moves import MovesBoard
from engine.admin.reassignment.wave_progress import WaveProgress
from plans.score import BrokerScore, Score
from plans.summary import Units, card_rows, largest, summary
from tui.drawing.cells import Cell, Tone
from tui.drawing.lines import Line, Span, beside, line
from tui.drawing.units import NOTHING, byte_rate, clock_time, count, counted, ids, percent, size, span, span_left
from tui.operations.operation import Outcome
from tui.planning.opened_plan import OpenedPlan
from tui.planning.plan_run import PlanRunState, RunState

UNITS = Units(size, span)
LARGEST_MAX = 10
CARD_WIDTH = 54
LABEL_WIDTH = 10
BAR_MIN, BAR_MAX = 4, 14
"""A shorter bar tells nothing, and a longer one no more."""
WAVES_MAX = 30


@dataclass(frozen=True, slots=True)
class Load:
    """One measure of the brokers before and after; None means not known."""

    label: str
    before: Mapping[int, int | None]
    after: Mapping[int, int | None]
    text: Callable[[float | None], str] = count


def sentence(plan: OpenedPlan) -> str:
    """Return what a plan costs, and what is proven about it."""
    if plan.file is None:
        return f"{counted(len(plan.targets), 'partition')}; a file in Kafka's form says no more"
    envelope = plan.file.klamm
    sentence = summary(envelope.score, envelope.options.minimise, len(plan.targets), UNITS)
    return f"{envelope.strategy}: {sentence}" if plan.targets else sentence


def loads_of(score: Score) -> list[Load]:
    """Return what each broker carries before and after, as the score card has it."""

    def load(label: str, name: str, text: Callable[[float | None], str] = count) -> Load:
        rows = score.brokers
        before = {row.broker: getattr(row, f"{name}_before") for row in rows}
        return Load(label, before, {row.broker: getattr(row, f"{name}_after") for row in rows}, text)

    loads = [load("replicas", "replicas"), load("leaders", "leaders")]
    has_bytes = any(row.bytes_before is not None for row in score.brokers)
    return [*loads, load("bytes", "bytes", size)] if has_bytes else loads


def bar_lines(loads: Sequence[Load], brokers: Sequence[int], width: int, rows: int) -> list[Line]:
    """Return a row for each broker: each measure before and after, and beside it a bar.

    What stays is quiet, what comes is coloured, what goes is a shade. The bars of a measure have one scale, which
    begins at zero. If not all brokers fit into ``rows``, those that change most are shown.
    """
    shown = _most_changed(loads, brokers, rows)
    title = "broker" if len(shown) == len(brokers) else f"{len(shown)} of {len(brokers)}"
    parts = [_figures(load, shown) for load in loads]
    wide = [sum(max(len(row[at]) for row in part) for at in (0, 1)) for part in parts]
    room = (width - LABEL_WIDTH - sum(wide)) // max(1, len(loads)) - 4
    bar = min(BAR_MAX, room) if room >= BAR_MIN else 0
    head = "".join(f"{load.label:<{width_ + bar + 4}}" for load, width_ in zip(loads, wide, strict=True))
    lines = [line((f"{title:<{LABEL_WIDTH}}{head}".rstrip(), Tone.QUIET))]
    for index, broker in enumerate(shown):
        spans: list[Span] = [(f"{broker:<{LABEL_WIDTH}}", Tone.STRONG)]
        for load, part in zip(loads, parts, strict=True):
            before, after = part[index]
            first, second = (max(len(row[at]) for row in part) for at in (0, 1))
            tone = Tone.PLAIN if load.before.get(broker) == load.after.get(broker) else Tone.ACCENT
            spans += [(f"{before:>{first}}", Tone.QUIET), (f"{after:>{second}} ", tone)]
            spans += [*_bar(load, broker, bar), ("   ", Tone.PLAIN)]
        lines.append(tuple(spans))
    return lines


def _figures(load: Load, brokers: Sequence[int]) -> list[tuple[str, str]]:
    """Return what each broker has before, with an arrow, and after; one figure alone says that nothing changes."""
    both = [(load.before.get(broker), load.after.get(broker)) for broker in brokers]
    return [("" if old == new else f"{load.text(old)} → ", load.text(new)) for old, new in both]


def _bar(load: Load, broker: int, width: int) -> list[Span]:
    """Return the bar of a broker in ``width`` cells."""
    top = max([1, *(value or 0 for side in (load.before, load.after) for value in side.values())])
    before, after = (
        min(width, max(round((value or 0) / top * width), 1 if value and value > 0 else 0))
        for value in (load.before.get(broker), load.after.get(broker))
    )
    stays = min(before, after)
    return [
        ("▇" * stays, Tone.QUIET),
        ("▇" * (after - stays), Tone.ACCENT),
        ("░" * (before - stays), Tone.QUIET),
        (" " * (width - max(before, after)), Tone.PLAIN),
    ]


def _most_changed(loads: Sequence[Load], brokers: Sequence[int], room: int) -> list[int]:
    if len(brokers) <= room:
        return list(brokers)

    def change(broker: int) -> int:
        return max(abs((load.after.get(broker) or 0) - (load.before.get(broker) or 0)) for load in loads)

    return sorted(sorted(brokers, key=lambda broker: (-change(broker), broker))[:room])


def card_lines(score: Score) -> list[Line]:
    """Return the score card: each measure before and after, in ``CARD_WIDTH`` cells."""
    lines = [line((f"{'brokers that remain':<34}{'before':>9} {'after':>9}", Tone.QUIET))]
    for label, before, after in card_rows(score):
        before_text, after_text = _figure(before), _figure(after)
        tone = Tone.PLAIN if before == after else Tone.ACCENT
        if label == "rack violations" and after:
            tone = Tone.BAD
        lines.append(line((f"{label:<34}", Tone.QUIET), f"{before_text:>9} ", (f"{after_text:>9}", tone)))
    return lines


def _figure(value: int | str | None) -> str:
    return NOTHING if value is None else value if isinstance(value, str) else count(value)


def flow_lines(rows: Sequence[BrokerScore]) -> list[Line]:
    """Return what goes into each broker and out of it, a line for each broker."""
    head = f"{'broker':<8}{'rack':<12}{'replicas':>16}{'leaders':>16}{'bytes':>24}{'in':>12}{'out':>12}{'sends':>12}"
    lines = [line((head, Tone.QUIET))]
    for row in rows:
        replicas = f"{row.replicas_before} → {row.replicas_after}"
        leaders = f"{row.leaders_before} → {row.leaders_after}"
        sizes = NOTHING if row.bytes_before is None else f"{size(row.bytes_before)} → {size(row.bytes_after)}"
        name = f"{row.broker}{'' if row.alive else ' ✖'}"
        flows = "".join(f"{size(value):>12}" for value in (row.bytes_in, row.bytes_out, row.bytes_sent))
        text = f"{(row.rack or NOTHING)[:11]:<12}{replicas:>16}{leaders:>16}{sizes:>24}{flows}"
        lines.append(line((f"{name:<8}", Tone.STRONG), text))
    return lines


def largest_lines(plan: OpenedPlan) -> list[Line]:
    rows = largest(list(plan.planned), LARGEST_MAX)
    if not rows:
        return [line(("nothing is copied", Tone.QUIET))]
    wide = max(len(str(row.name)) for row in rows)
    lines = []
    for row in rows:
        name, after = (f"{row.name!s:<{wide}}", Tone.STRONG), (ids(row.after), Tone.ACCENT)
        lines.append(line(name, f"  {ids(row.before)} → ", after, f"   {size(row.bytes)}"))
    return lines


def wave_lines(plan: OpenedPlan) -> list[Line]:
    """Return the waves with the default caps."""
    partitions = Counter(plan.wave_of.values())
    sizes = {planned.name: planned.bytes for planned in plan.planned}
    lines = []
    for wave in sorted(partitions)[:WAVES_MAX]:
        known = [sizes.get(name) for name, number in plan.wave_of.items() if number == wave]
        copied = NOTHING if None in known else size(sum(size_bytes or 0 for size_bytes in known))
        lines.append(line((f"wave {wave:<4}", Tone.STRONG), f"{count(partitions[wave]):>6} partitions   {copied}"))
    more = len(partitions) - WAVES_MAX
    return [*lines, line((f"and {more} more", Tone.QUIET))] if more > 0 else lines


def detail_lines(plan: OpenedPlan, width: int) -> list[Line]:
    """Return all of a plan, for a window that can be scrolled."""
    lines = [line((sentence(plan), Tone.STRONG))]
    if plan.file is None:
        return lines
    score = plan.file.klamm.score
    lines += [line((f"solver: {score.solver}", Tone.QUIET)), *(line(("! ", Tone.WARN), note) for note in plan.notes)]
    if not plan.targets:
        return lines
    lines += [(), *card_lines(score), (), *flow_lines(score.brokers)]
    if score.log_dirs:
        lines += [(), line(("log dirs", Tone.QUIET))]
    for log_dir in score.log_dirs:
        text = f"{log_dir.log_dir}   {log_dir.replicas_before} → {counted(log_dir.replicas_after, 'replica')}"
        sizes = f"   {size(log_dir.bytes_before)} → {size(log_dir.bytes_after)}"
        lines.append(line((f"{log_dir.broker:<4}", Tone.STRONG), text + sizes))
    blocks = [
        [line(("the largest moves", Tone.QUIET)), *largest_lines(plan)],
        [line(("waves of at most 10 replicas per broker", Tone.QUIET)), *wave_lines(plan)],
    ]
    left = max((sum(len(text) for text, _ in block) for block in blocks[0]), default=0)
    if left + 40 <= width:
        return [*lines, (), *beside(blocks[0], blocks[1], left_width=left)]
    return [*lines, (), *blocks[0], (), *blocks[1]]


# The current run of a plan, and past ones: lines for the page, rows of the history

_TONES = {
    RunState.UNDER_WAY: Tone.ACCENT, RunState.DONE: Tone.GOOD, RunState.STOPPED: Tone.WARN, RunState.FAILED: Tone.BAD,
}  # fmt: skip
_MARKS = {RunState.UNDER_WAY: "▶", RunState.DONE: "✔", RunState.STOPPED: "■", RunState.FAILED: "✖"}
_BAR = 16


def run_lines(run: PlanRunState, moves: MovesBoard | None = None) -> list[Line]:
    """Return the progress of a run, and what it said last.

    Until the run itself can tell the time left, it is that of the reassignments under way.
    """
    tone = _TONES[run.state]
    lines = [line((f"{_MARKS[run.state]} {run.run.verb} {run.run.path.name}: {run.state}", tone))]
    if run.progress is not None and run.is_under_way:
        where, how = progress_texts(run.progress, moves)
        lines = [line(*lines[0], f"   {where}"), line("  ", (how, tone))]
    if run.said:
        at_ms, text = run.said[-1]
        lines.append(line((f"  {clock_time(at_ms)}  ", Tone.QUIET), (text, tone if run.error else Tone.PLAIN)))
    return lines


def progress_texts(progress: WaveProgress, moves: MovesBoard | None = None) -> tuple[str, str]:
    """Return where a run is: wave, partitions, throttle; and its progress: bytes, rate, a range for the time left."""
    where = f"wave {progress.wave} of {progress.wave_count}   {progress.done_count}/{progress.count} partitions"
    where += "   no throttle" if progress.throttle is None else f"   throttle {byte_rate(progress.throttle)}"
    if progress.moved_bytes is None or progress.total_bytes is None:
        return where, "sizes are not known"
    share = progress.share
    full = int(share * _BAR)
    bar = f"{'━' * full}{'╌' * (_BAR - full)} {percent(share)}"
    sizes = f"{size(progress.moved_bytes)} of {size(progress.total_bytes)}"
    return where, f"{bar}  {sizes}   {byte_rate(progress.rate)}   {time_left(progress, moves)}"


def time_left(progress: WaveProgress, moves: MovesBoard | None = None) -> str:
    """Return the time left, as a range if the rate varies."""
    least, most = progress.left_s_min, progress.left_s_max
    if least is None:
        if moves is None or moves.left_s is None:
            return "time left not known"
        return f"moving now: {span_left(moves.left_s, moves.left_low_s, moves.left_high_s)}"
    return span_left(least, least, most)


def run_outcome(state: PlanRunState) -> Outcome:
    title = f"{state.run.verb.value.capitalize()} {state.run.path.name}"
    result = state.result
    if result is None:
        return Outcome(title, (), (), (state.error,))
    is_done = state.state is RunState.DONE and result.done == result.count
    rows = (
        (Cell("partitions there"), Cell(f"{result.done} of {result.count}", Tone.GOOD if is_done else Tone.BAD)),
        (Cell("waves"), Cell(f"{result.wave} of {result.wave_count}")),
        *((Cell("still under way"), Cell(str(name), Tone.WARN)) for name in result.moving[:20]),
    )
    errors = () if result.reason is None else (result.reason,)
    return Outcome(title, ("", ""), rows, errors, (*result.left, f"journal: {state.run.journal_file}"))
