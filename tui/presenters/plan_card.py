"""What a plan does, drawn: its sentence, the score card, brokers as heat before and after, waves, the largest moves.

Pure. The shades of a measure before and after share one scale, which begins at zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from plans.score import BrokerScore, Score
from plans.telling import Units, card_rows, largest, summary
from tui.cells import Tone
from tui.lines import Line, beside, line
from tui.state.opened_plan import OpenedPlan
from tui.units import NOTHING, byte_rate, count, counted, ids, percent, size, span

UNITS = Units(size, span)
LARGEST_MAX = 10
CARD_WIDTH = 54
LABEL_WIDTH = 18
COUNT_WIDTH, SIZE_WIDTH = 9, 12
"""Width of a cell with a count, and of all cells if some have bytes."""
WAVES_MAX = 30
_SHADES = " ░▒▓█"


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
    told = summary(envelope.score, envelope.options.minimise, len(plan.targets), UNITS)
    return f"{envelope.strategy}: {told}" if plan.targets else told


def proof(score: Score) -> str:
    """Return how good the plan is proven to be, with the bound and the gap to it."""
    bound = score.lower_bound
    least = f"bound {count(bound.moves)} moves" + ("" if bound.bytes is None else f", {size(bound.bytes)}")
    gap = "optimal" if score.is_optimal else f"gap {NOTHING if score.gap is None else percent(score.gap)}"
    return f"{least}   {gap}   by {score.solver}"


def loads_of(score: Score) -> list[Load]:
    """Return what each broker carries before and after, as the score card has it."""

    def load(label: str, name: str, text: Callable[[float | None], str] = count) -> Load:
        rows = score.brokers
        before = {row.broker: getattr(row, f"{name}_before") for row in rows}
        return Load(label, before, {row.broker: getattr(row, f"{name}_after") for row in rows}, text)

    loads = [load("replicas", "replicas"), load("leaders", "leaders")]
    has_bytes = any(row.bytes_before is not None for row in score.brokers)
    return [*loads, load("bytes", "bytes", size)] if has_bytes else loads


def heat_lines(loads: Sequence[Load], brokers: Sequence[int], width: int) -> list[Line]:
    """Return brokers side by side, each measure before and after. If few fit, those that change most are shown."""
    cell_width = SIZE_WIDTH if any(load.text is size for load in loads) else COUNT_WIDTH
    room = max(1, (width - LABEL_WIDTH - 8) // cell_width)
    shown = _most_changed(loads, brokers, room)
    title = "broker" if len(shown) == len(brokers) else f"{len(shown)} of {len(brokers)} brokers"
    lines = [line((f"{title:<{LABEL_WIDTH}}" + "".join(f"{broker:>{cell_width}}" for broker in shown), Tone.QUIET))]
    for load in loads:
        known = [value for side in (load.before, load.after) for value in side.values() if value is not None]
        top = max([*known, 1])
        for word, values in (("before", load.before), ("after", load.after)):
            label = load.label if word == "before" else ""
            cells: list[tuple[str, Tone]] = []
            for broker in shown:
                value = values.get(broker)
                has_changed = word == "after" and value != load.before.get(broker)
                text = f" {shade(value, top)} {load.text(value):>{cell_width - 4}}"
                cells.append((text, Tone.ACCENT if has_changed else Tone.PLAIN))
            lines.append(line((f"{label:<{LABEL_WIDTH}}", Tone.QUIET), *cells, (f"  {word}", Tone.QUIET)))
    return lines


def shade(value: int | None, top: int) -> str:
    """Return two cells, the darker the nearer the value is to the top."""
    if not value or value < 0:
        return "  "
    return _SHADES[min(4, max(1, round(value / top * 4)))] * 2


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
        told, later = _figure(before), _figure(after)
        tone = Tone.PLAIN if before == after else Tone.ACCENT
        if label == "rack violations" and after:
            tone = Tone.BAD
        lines.append(line((f"{label:<34}", Tone.QUIET), f"{told:>9} ", (f"{later:>9}", tone)))
    return lines


def _figure(value: int | str | None) -> str:
    return NOTHING if value is None else value if isinstance(value, str) else count(value)


def flow_lines(rows: Sequence[BrokerScore]) -> list[Line]:
    """Return what goes into each broker and out of it, a line for each broker."""
    head = f"{'broker':<8}{'rack':<12}{'replicas':>16}{'leaders':>16}{'bytes':>24}{'in':>12}{'out':>12}{'sends':>12}"
    lines = [line((head, Tone.QUIET))]
    for one in rows:
        replicas = f"{one.replicas_before} → {one.replicas_after}"
        leaders = f"{one.leaders_before} → {one.leaders_after}"
        sizes = NOTHING if one.bytes_before is None else f"{size(one.bytes_before)} → {size(one.bytes_after)}"
        name = f"{one.broker}{'' if one.alive else ' ✖'}"
        flows = "".join(f"{size(value):>12}" for value in (one.bytes_in, one.bytes_out, one.bytes_sent))
        text = f"{(one.rack or NOTHING)[:11]:<12}{replicas:>16}{leaders:>16}{sizes:>24}{flows}"
        lines.append(line((f"{name:<8}", Tone.STRONG), text))
    return lines


def largest_lines(plan: OpenedPlan) -> list[Line]:
    """Return the moves that copy most."""
    rows = largest(list(plan.planned), LARGEST_MAX)
    if not rows:
        return [line(("nothing is copied", Tone.QUIET))]
    wide = max(len(str(one.name)) for one in rows)
    return [
        line(
            (f"{one.name!s:<{wide}}", Tone.STRONG),
            f"  {ids(one.before)} → ",
            (ids(one.after), Tone.ACCENT),
            (f"   {size(one.bytes)}", Tone.PLAIN),
        )
        for one in rows
    ]


def wave_lines(plan: OpenedPlan) -> list[Line]:
    """Return the waves with the default caps."""
    partitions = Counter(plan.wave_of.values())
    sizes = {one.name: one.bytes for one in plan.planned}
    lines = []
    for wave in sorted(partitions)[:WAVES_MAX]:
        known = [sizes.get(name) for name, number in plan.wave_of.items() if number == wave]
        copied = NOTHING if None in known else size(sum(one or 0 for one in known))
        lines.append(line((f"wave {wave:<4}", Tone.STRONG), f"{count(partitions[wave]):>6} partitions   {copied}"))
    more = len(partitions) - WAVES_MAX
    return [*lines, line((f"and {more} more", Tone.QUIET))] if more > 0 else lines


def detail_lines(plan: OpenedPlan, width: int) -> list[Line]:
    """Return all of a plan, for a window that can be scrolled."""
    lines = [line((sentence(plan), Tone.STRONG))]
    if plan.file is None:
        return lines
    score = plan.file.klamm.score
    lines += [line((proof(score), Tone.QUIET)), *(line(("! ", Tone.WARN), note) for note in plan.notes)]
    if not plan.targets:
        return lines
    lines += [(), *card_lines(score), (), *flow_lines(score.brokers)]
    if score.log_dirs:
        lines += [(), line(("log dirs", Tone.QUIET)), *_dir_lines(score)]
    blocks = [
        [line(("the largest moves", Tone.QUIET)), *largest_lines(plan)],
        [line(("waves of at most 10 replicas per broker", Tone.QUIET)), *wave_lines(plan)],
    ]
    left = max((sum(len(text) for text, _ in one) for one in blocks[0]), default=0)
    if left + 40 <= width:
        return [*lines, (), *beside(blocks[0], blocks[1], left_width=left)]
    return [*lines, (), *blocks[0], (), *blocks[1]]


def _dir_lines(score: Score) -> list[Line]:
    return [
        line(
            (f"{one.broker:<4}", Tone.STRONG),
            f"{one.log_dir}   {one.replicas_before} → {counted(one.replicas_after, 'replica')}"
            f"   {size(one.bytes_before)} → {size(one.bytes_after)}",
        )
        for one in score.log_dirs
    ]


def throttle_text(rate: int | None) -> str:
    """Return how fast brokers may copy."""
    return "no throttle" if rate is None else f"throttle {byte_rate(rate)}"
