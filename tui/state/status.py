"""The line under the title: the connection to the cluster, and the age of the data."""

from __future__ import annotations

import logging
import re
from enum import StrEnum

from engine.admin.cluster.rights import Right
from engine.admin.cluster.target import Side
from engine.admin.watch.frame import Frame, Link, LinkState, Stage, StageSource, StageStatus
from tui.drawing.cells import Tone
from tui.drawing.lines import Line, Span, folded, line, wrapped
from tui.drawing.units import NOTHING, plain, span
from tui.remedies import spelled

log = logging.getLogger(__name__)


class Standing(StrEnum):
    """The dashboard's connection to the cluster."""

    CONNECTING = "connecting"
    LIVE = "live"
    STALE = "stale"
    DEGRADED = "degraded"
    DISCONNECTED = "disconnected"
    DENIED = "denied"

    @property
    def is_seen(self) -> bool:
        """Whether the screen shows the cluster as it is now, as far as klamm can know."""
        return self in (Standing.LIVE, Standing.DEGRADED)


_TONES = {Standing.LIVE: Tone.GOOD, Standing.STALE: Tone.WARN, Standing.DEGRADED: Tone.WARN}
_SIGNS = {Standing.LIVE: "●", Standing.STALE: "◐", Standing.DEGRADED: "◐", Standing.CONNECTING: "○"}
_SIDE_NAMES = {Side.ZOOKEEPER: "ZooKeeper", Side.WIRE: "brokers"}
_ANONYMOUS = "User:ANONYMOUS"
_BESIDE = frozenset({Stage.METRICS, Stage.SPARK})
"""Stages that are not part of Kafka's protocol say nothing about the connection to it: their own screen does."""
_OF_BROKER = re.compile(r"broker (\d+): ")
STALE_FACTOR = 3
STALE_MIN_MS = 5_000


def standing_of(frame: Frame, now_ms: int | None = None) -> Standing:
    """Return the standing of the dashboard with the cluster of a frame."""
    states = [frame.link(side).state for side in Side if frame.link(side).state is not LinkState.UNUSED]
    is_first_look = frame.stage(Stage.METADATA).read_at_ms is None and LinkState.CONNECTING in states
    if not states or (is_first_look and not {LinkState.LOST, LinkState.DENIED} & {*states}):
        return Standing.CONNECTING
    if all(state is not LinkState.CONNECTED for state in states):
        return Standing.DENIED if LinkState.DENIED in states else Standing.DISCONNECTED
    if any(state is not LinkState.CONNECTED for state in states) or any(
        (status.error and not _is_hidden(frame, status)) or _missing(frame, status)
        for _, status in _stages_of_cluster(frame)
        if status.source is not None
    ):
        return Standing.DEGRADED
    return Standing.STALE if oldest_late_stage(frame, now_ms) is not None else Standing.LIVE


def _missing(frame: Frame, status: StageStatus) -> list[str]:
    """Return what a reading lacks, but for brokers that are down: nobody expects an answer of theirs."""
    if frame.cluster is None:
        return [*status.missing]
    live = frame.cluster.live_broker_ids
    return [text for text in status.missing if not (match := _OF_BROKER.match(text)) or int(match[1]) in live]


def _is_hidden(frame: Frame, status: StageStatus) -> bool:
    """Whether a stage is not read because a right is missing; missing rights have a line of their own."""
    return status.is_denied and bool(frame.denied) and status.source is not StageSource.WATCH


def login_of(frame: Frame) -> str | None:
    """Return who is logged in; None without a login, if nothing is hidden."""
    return None if frame.principal == _ANONYMOUS and not frame.denied else frame.principal


def rights_text(frame: Frame) -> str:
    """Return who lacks which rights, with equal rights merged; empty if no right is missing."""
    alike: dict[tuple[object, object], list[Right]] = {}
    for right in frame.denied:
        alike.setdefault((right.operation, right.resource_type), []).append(right)
    parts = [f"{first}{f' and {len(more)} more' if more else ''}" for first, *more in alike.values()]
    return f"{frame.principal or 'this login'} lacks {'; '.join(parts)}" if parts else ""


def _stages_of_cluster(frame: Frame) -> list[tuple[Stage, StageStatus]]:
    return [(stage, status) for stage, status in frame.stages.items() if stage not in _BESIDE]


def oldest_late_stage(frame: Frame, now_ms: int | None = None) -> tuple[Stage, int] | None:
    """Return the stage whose data is older than it should be, and its age in ms."""
    now_ms = frame.at_ms if now_ms is None else now_ms
    late = []
    for stage, status in _stages_of_cluster(frame):
        if status.source is None or status.read_at_ms is None:
            continue
        age_ms = now_ms - status.read_at_ms
        if age_ms > max(STALE_MIN_MS, STALE_FACTOR * (status.interval_ms or 0)):
            late.append((stage, age_ms))
    return max(late, key=lambda stage_age: stage_age[1], default=None)


def status_lines(frame: Frame, width: int, *, now_ms: int | None = None) -> list[Line]:
    """Return the word, the age of the last good data, the causes and the next try; causes are cut last."""
    standing = standing_of(frame, now_ms)
    word: Span = (f"{_SIGNS.get(standing, '✖')} {standing.value}", _TONES.get(standing, Tone.BAD))
    if standing is Standing.CONNECTING:
        word = (word[0], Tone.ACCENT)
    if not frame.stages:
        return [line(word, ("  nothing has been read yet", Tone.QUIET))]
    now_ms = frame.at_ms if now_ms is None else now_ms
    read_at = frame.stage(Stage.METADATA).read_at_ms
    age = "no data yet" if read_at is None else f"data {span(max(0, now_ms - read_at) / 1000)} old"
    pieces = [line(word, (f"  {age}", Tone.QUIET)), *map(line, _causes(frame, now_ms))]
    return [part for row in wrapped(pieces, width) for part in folded(row, width)]


def _causes(frame: Frame, now_ms: int) -> list[Span]:
    spans: list[Span] = []
    for side in Side:
        link = frame.link(side)
        if link.state in (LinkState.LOST, LinkState.DENIED, LinkState.CONNECTING):
            spans.append((f"{_link_text(side, link, now_ms)}", Tone.BAD if link.cause else Tone.QUIET))
    # The stages of a lost side need no words of their own; ``i`` shows each stage.
    causes = [link.cause for link in frame.links.values() if link.cause]
    for stage, status in _stages_of_cluster(frame):
        if (spans and any(cause in status.error for cause in causes)) or _is_hidden(frame, status):
            continue
        if status.error and status.source is not None:
            sign = "⊘ " if status.is_denied else ""
            spans.append((f"{sign}{stage.value.replace('_', ' ')}: {plain(status.error)}", Tone.WARN))
        elif missing := _missing(frame, status):
            spans.append((f"{stage.value.replace('_', ' ')}: {plain(missing[0])}", Tone.WARN))
    late = oldest_late_stage(frame, now_ms)
    if late is not None and not spans:
        stage, age_ms = late
        spans.append((f"{stage.value.replace('_', ' ')} {span(age_ms / 1000)} old, asked and not answered", Tone.WARN))
    if rights := rights_text(frame):
        spans.append((f"⊘ {plain(rights)}", Tone.QUIET))
    return spans


def causes_of(frame: Frame) -> list[str]:
    """Return why the dashboard does not see the cluster as it should, a text for each cause."""
    return [text for text, _ in _causes(frame, frame.at_ms)]


class StandingLog:
    """Logs when the dashboard loses sight of a cluster, and when it sees it again."""

    _last: Standing | None = None

    def note(self, frame: Frame, name: str) -> None:
        standing = standing_of(frame)
        if standing is not self._last:
            self._last = standing
            level = logging.INFO if standing.is_seen or standing is Standing.CONNECTING else logging.WARNING
            where = f"{name} {'; '.join(causes_of(frame))}".rstrip()
            log.log(level, "The dashboard is %s. cluster=%s", standing, where)


def _link_text(side: Side, link: Link, now_ms: int) -> str:
    name = f"{_SIDE_NAMES[side]} {plain(link.address)}"
    if link.state is LinkState.CONNECTING:
        return f"asking {name}"
    word = "refuse us" if link.state is LinkState.DENIED else "lost"
    last = "" if link.last_answer_ms is None else f", last answer {span((now_ms - link.last_answer_ms) / 1000)} ago"
    following = ", trying now" if link.state is LinkState.LOST else ""
    if link.next_try_ms is not None and link.next_try_ms > now_ms:
        following = f", next try in {span((link.next_try_ms - now_ms) / 1000)}"
    return f"{name} {word}: {cause_of(link)}{last}{following}"


def cause_of(link: Link) -> str:
    """Return why a link is lost, without the address, which stands before it."""
    return plain(link.cause.removesuffix(f": {link.address}"))


def source_lines(frame: Frame) -> list[Line]:
    """Return a line for each stage: its source, its age and its cost. What went wrong follows, indented."""
    if not frame.stages:
        return [line(("nothing has been read yet", Tone.QUIET))]
    header = f"{'what':<14}{'how':<9}{'age':>8}{'every':>8}{'took':>8}{'requests':>10}"
    lines = [line((header, Tone.QUIET))]
    for stage, status in frame.stages.items():
        age = frame.age_ms(stage)
        how = NOTHING if status.source is None else status.source.value
        row = (
            f"{stage.value.replace('_', ' '):<14}{how:<9}{span(None if age is None else age / 1000):>8}"
            f"{span(None if status.interval_ms is None else status.interval_ms / 1000):>8}"
            f"{NOTHING if status.cost_ms is None else f'{status.cost_ms:.0f} ms':>8}{status.requests:>10}"
        )
        trouble = "; ".join([plain(status.error)] * bool(status.error) + [plain(name) for name in status.missing])
        lines += [line(row), *_indented(trouble)]
    for side in Side:
        link = frame.link(side)
        if link.state is not LinkState.UNUSED:
            lines.append(line(f"{_SIDE_NAMES[side]:<14}{link.state.value:<14}{plain(link.address)}"))
            lines += _indented(plain(link.cause))
    if frame.denied:
        lines += [line(), line((f"⊘ Hidden from {plain(frame.principal or 'this login')}", Tone.STRONG))]
        for right in frame.denied:
            remedy = spelled(right.remedy(frame.principal))
            lines.append(line(f"  it lacks {plain(str(right))}: ", (remedy, Tone.QUIET)))
    note = "A change that is reverted between two reads is not seen. Rates are over 10 s."
    return [*lines, (), line((note, Tone.QUIET))]


def _indented(trouble: str) -> list[Line]:
    """Return what went wrong as a line of its own: where a window folds it, all its parts are indented."""
    return [line(("  " + trouble, Tone.WARN))] if trouble else []
