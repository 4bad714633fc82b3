"""The text beside a table on a wide terminal: more about the row under the cursor.

It shows what does not fit into the row, its figures over time, its parts, and what happened to it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import groupby
from math import isfinite
from typing import Any

from engine.admin.analysis.incidents import Incident, Run, Runs
from engine.admin.analysis.timeline import timelines
from engine.admin.brokers.metrics import IDLE_LOW_PERCENT, TOPICS_MAX, BrokerFigures
from engine.admin.lag.group_lag import PartitionLag, QueryPartitionLag
from engine.admin.lag.verdicts import Reason
from engine.admin.watch.events import Event
from engine.admin.watch.frame import Stage, WatchedGroup
from engine.common.acl import AclOperation, ResourceType
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.snapshot import TopicSnapshot
from tui.drawing.cells import Tone
from tui.drawing.lines import Line, beside, fitted, folded, line
from tui.drawing.sparkline import FigureText, Series, chart_lines
from tui.drawing.units import (
    NOTHING,
    at_least,
    byte_rate,
    clock_time,
    count,
    counted,
    date_time,
    milliseconds,
    percent,
    plain,
    rate,
    short_count,
    size,
    span,
)
from tui.operations.operation import command_text
from tui.pages import brokers, clusters, groups, logs, spark, timeline, zookeeper
from tui.pages.brokers import BrokerItem
from tui.pages.groups import member_lines, why_of
from tui.pages.page import View
from tui.pages.partitions import state_of
from tui.pages.reassignments import MoveItem
from tui.pages.reassignments import why_of as why_of_copy
from tui.pages.replicas import Replica, chosen, replicas_of
from tui.pages.spark import QueryRow
from tui.pages.timeline import change_text, kind_cell, run_line
from tui.state.board import Board, PartitionItem
from tui.state.off_board import ShownRecord
from tui.state.problems import problem_of

Aside = Callable[[View, Any, int], list[Line]]

_EVENTS = 12
_ROWS = 8
_CHART_WIDTH = 100
_CHART_MIN, _CHART_SHARE = 4, 6
"""A chart takes this many lines, and this part of a tall terminal."""
_COLUMNS_MIN = 100
"""From this width on, the parts stand in two columns."""
_BAR_MAX = 20
_BYTES_MAX = 1_000
"""More of a key, a value or a header is not shown."""
NOBODY = {NO_LEADER: "nobody"}
_NOTHING_HAPPENED = line(("nothing since the dashboard started", Tone.QUIET))


def aside_of(view: View, page: str, item: Any, width: int, height: int = 0) -> list[Line]:
    """Return more about a row of a screen in lines of ``width``; nothing if its columns say it all.

    Charts that would be cut at ``height`` are left out: half a curve says less than what stands below it. 0: no limit.
    """
    made = _ASIDES.get(page)
    if made is None or item is None:
        return []
    if width >= _COLUMNS_MIN and page not in _ONE_TEXT:
        half = (width - 3) // 2
        return [fitted(each, width) for each in _in_columns(made(view, item, half), half)]
    lines: list[Line] = []
    for part in _parts(made(view, item, width)):
        is_chart = any(tone is Tone.FRAME for _, tone in part[-1])
        if not (is_chart and 0 < height < len(lines) + len(part) + 1):
            lines += [*[()] * bool(lines), *part]
    return [fitted(text, width) for text in lines]


def _parts(lines: Sequence[Line]) -> list[list[Line]]:
    """Return what stands between blank lines."""
    return [[*part] for is_text, part in groupby(lines, bool) if is_text]


def _in_columns(lines: Sequence[Line], width: int) -> list[Line]:
    """Return the first part, and below it the other parts in two columns of about the same height."""
    first, *others = _parts(lines) or [[]]
    left: list[Line] = []
    right: list[Line] = []
    for part in others:
        into = left if not right and 2 * len(left) < len(lines) - len(first) - len(part) else right
        into += [*[()] * bool(into), *part]
    return [*first, *[()] * bool(others), *beside(left, right, left_width=width)]


# Pieces


def _title(text: str) -> list[Line]:
    return [(), line((text, Tone.QUIET))]


def _folded(text: str, width: int, tone: Tone = Tone.PLAIN) -> list[Line]:
    return folded(line((plain(text), tone)), width)


def _chart(
    view: View, title: str, values: Series, width: int, text: FigureText, *, top: float | None = None
) -> list[Line]:
    """Return a chart from zero to ``top``, or to a round number above all values, with the newest of them."""
    if sum(value is not None for value in values) < 2:
        return []
    head = (f"{title}  ", Tone.QUIET), (text(values[-1]), Tone.STRONG)
    height = max(_CHART_MIN, view.height // _CHART_SHARE)
    return [(), line(*head), *chart_lines(values, min(width, _CHART_WIDTH), height, text, top=top)]


def _what_to_do(view: View, page: str, item: Any, width: int) -> list[Line]:
    """Return the advice on a row in trouble; it comes first, because lines below may be out of sight."""
    problem = problem_of(view.board, page, item)
    return [] if problem is None else [*_title("what to do"), *_folded(problem.advice, width)]


def _happened(events: Iterable[Event]) -> list[Line]:
    """Return the newest of these events of one thing, given the newest first."""
    lines = _title("what happened")
    for event in events:
        if len(lines) == 2 + _EVENTS:
            break
        kind = kind_cell(event)
        head = (f"{clock_time(event.at_ms)}  ", Tone.QUIET), (f"{kind.text}  ", kind.tone)
        lines.append(line(*head, f"{plain(change_text(event))}  ", (plain(event.reason), Tone.QUIET)))
    return lines if len(lines) > 2 else [*lines, _NOTHING_HAPPENED]


def _is_about(event: Event, name: TopicPartition) -> bool:
    """Whether an event is a partition's; compared by parts, because each frame has thousands of events."""
    return event.partition == name.partition and event.topic == name.topic


def _events_of(board: Board, is_wanted: Callable[[Event], bool]) -> list[Line]:
    return _happened(event for event in reversed(board.events) if is_wanted(event))


def _bars(rows: Sequence[tuple[str, float, str]], width: int) -> list[Line]:
    """Return a bar for each row, on one scale that begins at zero."""
    top = max((value for _, value, _ in rows), default=0.0)
    label = max((len(name) for name, _, _ in rows), default=0)
    room = max(4, min(_BAR_MAX, width - label - 16))
    return [
        line(f"{name:<{label}}  ", ("▇" * round(room * value / top) if top else "", Tone.QUIET), f" {text}")
        for name, value, text in rows
    ]


# One for each screen


def _broker(view: View, item: BrokerItem, width: int) -> list[Line]:
    board = view.board
    at = plain(board.seen_at.get(item.id, ""))
    lines = [line((f"broker {item.id}", Tone.STRONG), f"  {item.state}", (f"  {at}", Tone.QUIET))]
    trouble = f"{brokers.UNANSWERED}; {brokers.MAY_BE_FROZEN}" if item.id in board.hung else item.trouble
    lines += _folded(trouble, width, Tone.BAD) if trouble else []
    lines += _what_to_do(view, "brokers", item, width)
    lines += [] if item.info is None else _measured(view, item.figures, width, is_silent=bool(item.trouble))
    values = [sample.in_by_broker.get(item.id) for sample in board.samples]
    lines += _chart(view, "records in/s", values, width, short_count)
    lines += [] if item.info is None else _title(f"restart now: {item.restart.verdict.words}")
    lines += [part for reason in item.restart.reasons for part in _folded(f"• {reason}", width)]
    dirs = [trend for trend in board.dir_trends if trend.broker == item.id]
    if item.state != "up":
        # Why it tells nothing stands below its name.
        dirs = [trend for trend in dirs if trend.log_dir is not None]
    lines += _title("log dirs") if dirs else []
    for trend in dirs[:_ROWS]:
        used = NOTHING if trend.used_percent is None else percent(trend.used_percent / 100)
        full = "" if trend.full_in_s is None else f", no room in {span(trend.full_in_s)}"
        lines += _folded(trend.log_dir or NOTHING, width)
        text = f"{size(trend.size_bytes)}, {used} full{full}"
        lines += _folded(f"  {trend.error or text}", width, Tone.BAD if trend.error else Tone.PLAIN)
    return [*lines, *_events_of(board, lambda event: event.broker == item.id and event.topic is None)]


def _measured(view: View, measured: BrokerFigures | None, width: int, *, is_silent: bool) -> list[Line]:
    """Say what a broker measures, how it was read, and why something is missing."""
    board = view.board
    if not board.reads_metrics:
        return []
    if measured is None or measured.told_by is None:
        if is_silent:
            return []
        why = board.frame.stage(Stage.METRICS).error if measured is None else measured.trouble
        return [*_title("rates and latencies"), *_folded(why or "not read yet", width, Tone.QUIET)]
    age = span((board.frame.age_ms(Stage.METRICS) or 0) / 1000)
    lines = _title(f"rates and latencies, by {measured.told_by.value}, read {age} ago")
    times = f"produce {milliseconds(measured.produce_p99_ms)}, fetch {milliseconds(measured.fetch_p99_ms)}"
    held = f"produce {milliseconds(measured.produce_throttle_ms)}, fetch {milliseconds(measured.fetch_throttle_ms)}"
    idle = measured.handler_idle_percent
    for name, text, is_bad in (
        ("records", f"{rate(measured.messages_in.now)} in", False),
        ("bytes", f"{byte_rate(measured.bytes_in.now)} in, {byte_rate(measured.bytes_out.now)} out", False),
        ("p99", times, False),
        ("idle", NOTHING if idle is None else percent(idle / 100), idle is not None and idle < IDLE_LOW_PERCENT),
        ("throttled", held, bool(measured.throttle_ms)),
    ):
        lines += folded(line((f"{name:<11}", Tone.QUIET), (text, Tone.WARN if is_bad else Tone.PLAIN)), width)
    return [*lines, *(_folded(measured.trouble, width, Tone.QUIET) if measured.trouble else [])]


def _traffic(view: View, topic: TopicSnapshot, width: int) -> list[Line]:
    """Say what a topic's leaders measure, or why they do not."""
    board = view.board
    if not board.reads_metrics:
        return []
    rates, silent = board.frame.traffic.get(topic.name), board.untold(topic)
    lines = _title("traffic")
    if rates is not None:
        both = (at_least(byte_rate(rate), is_least=bool(silent)) for rate in rates)
        lines += _folded("{} in, {} out".format(*both), width)
    if silent:
        why = board.frame.figures[silent[0]].trouble or NOTHING
        who = f"broker {silent[0]} does" if len(silent) == 1 else f"brokers {', '.join(map(str, silent[:_ROWS]))} do"
        lines += _folded(f"{who} not report: {why}", width, Tone.QUIET)
    elif rates is None:
        lines += _folded(_why_no_traffic(board), width, Tone.QUIET)
    return lines


def _why_no_traffic(board: Board) -> str:
    status = board.frame.stage(Stage.METRICS)
    if not board.frame.figures:
        return status.error or "not read yet"
    if len(board.topics) > TOPICS_MAX:
        return f"not read: there are more than {count(TOPICS_MAX)} topics. See: klamm brokers metrics --topics"
    return "its leaders have counted nothing yet"


def _topic(view: View, topic: TopicSnapshot, width: int) -> list[Line]:
    board = view.board
    lines = [line((plain(topic.name), Tone.STRONG))]
    lines += _traffic(view, topic, width)
    settings = sorted((topic.configs or {}).items())
    is_hidden = board.lacks(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)
    unknown = "settings: ⊘" if is_hidden else "settings are not known"
    none = unknown if topic.configs is None else "no settings of its own"
    lines += _title("settings of its own" if settings else none)
    for name, value in settings[:_ROWS]:
        lines += _folded(f"{name} = {value}", width)
    led = Counter(partition.leader for partition in topic.partitions)
    lines += _title("partitions by leader")
    leaders = sorted(led)[: 2 * _ROWS]
    lines += _bars([(NOBODY.get(id_, f"broker {id_}"), led[id_], count(led[id_])) for id_ in leaders], width)
    rates = [(item.name, rate) for item in board.items_of(topic) if (rate := board.rates.partition_in(item.name))]
    if rates:
        busiest = sorted(rates, key=lambda rate: (-rate[1], rate[0]))[:_ROWS]
        lines += _title("busiest partitions, records in/s")
        lines += _bars([(plain(str(name)), rate, short_count(rate)) for name, rate in busiest], width)
    runs = Runs()
    for event in board.events:
        if event.topic == topic.name:
            runs.take(event)
    kinds = max((len(run.event.kind) for run in runs), default=0) + 2
    happened = [line(*run_line(run, kinds)) for run in list(runs)[: -_EVENTS - 1 : -1]]
    return [*lines, *_title("what happened"), *(happened or [_NOTHING_HAPPENED])]


def _partition(view: View, item: PartitionItem, width: int) -> list[Line]:
    board = view.board
    state = state_of(board, item)
    lines = [line((plain(str(item.name)), Tone.STRONG), "  ", state), *_title("replicas")]
    replicas = replicas_of(board, item)
    states = max((len(replica.state[0]) for replica in replicas), default=0)
    lines += [_replica(replica, states) for replica in replicas]
    return [*lines, *_past_of(board, item)]


def _replica(replica: Replica, states: int) -> Line:
    """Return a replica's line, with ``states`` cells for its state."""
    bytes_of, behind = (NOTHING, "") if replica.log is None else (size(replica.log.size_bytes), replica.log.offset_lag)
    late = f"   {short_count(behind)} behind" if isinstance(behind, int) and behind else ""
    return line(
        (f"broker {replica.broker:<5}", Tone.STRONG),
        f"{replica.role:<21}",
        (f"{replica.state[0]:<{states}}", replica.state[1]),
        f"   {bytes_of:>8}{late}",
    )


def _past_of(board: Board, item: PartitionItem) -> list[Line]:
    """Return who was out of the ISR and for how long, then everything that happened to the partition."""
    own = [event for event in board.events if _is_about(event, item.name)]
    lines: list[Line] = []
    for row in timelines(own):
        lines += _title("out of the ISR") if row.absences else []
        for absence in row.absences[-_ROWS:][::-1]:
            since = "before the first look" if absence.since_ms is None else clock_time(absence.since_ms)
            lasted_s = absence.lasted_s(board.frame.at_ms)
            lasted = "" if lasted_s is None else f" for {span(lasted_s)}"
            if absence.is_present(item.partition):
                lines.append(line((f"broker {absence.broker} since {since}{lasted}", Tone.BAD), ", and still is"))
            elif absence.until_ms is None:
                lines.append(line(f"broker {absence.broker} since {since}, and is no replica any more"))
            else:
                lines.append(line(f"broker {absence.broker} from {since} to {clock_time(absence.until_ms)}{lasted}"))
    return [*lines, *_happened(reversed(own))]


def _replica_of_partition(view: View, replica: Replica, width: int) -> list[Line]:
    items = chosen(view)
    return _past_of(view.board, items[0])[1:] if items else []


def _group(view: View, group: WatchedGroup, width: int) -> list[Line]:
    samples = view.board.history.lag.of(group.name)
    lines = [line((plain(group.name), Tone.STRONG), f"  {why_of(group.lag)}")]
    lines += _what_to_do(view, "groups", group, width)
    values = [sample.value if isfinite(sample.value) else None for sample in samples]
    lines += _chart(view, "lag", values, width, short_count)
    lines += _furthest_behind(group.lag.partitions, width)
    lines += [*_title("members"), *member_lines(group, _ROWS)]
    return [*lines, *_events_of(view.board, lambda event: event.subject == f"group {group.name}")]


def _furthest_behind(partitions: Iterable[PartitionLag | QueryPartitionLag], width: int) -> list[Line]:
    behind = [(plain(one.name), one.lag or 0, short_count(one.lag)) for one in partitions if one.is_behind]
    furthest = sorted(behind, key=lambda row: -row[1])[:_ROWS]
    return [*_title("partitions furthest behind"), *_bars(furthest, width)] if furthest else []


def _group_partition(view: View, partition: PartitionLag, width: int) -> list[Line]:
    """Where a group stands in a partition, who reads it, and the commands that help if it does not go on."""
    group = groups.group_of(view)
    if group is None:
        return []
    status, reason = groups.status_cell(partition.status, partition.reason), partition.reason.replace("_", " ")
    unread = count(0 if partition.reason is Reason.NO_RECORDS else partition.lag)
    stands = f"committed {count(partition.committed_offset)} of {count(partition.log_end_offset)}: {unread} to read"
    lines = [line((plain(partition.name), Tone.STRONG), "  ", status, f"  {reason}")]
    lines += [
        *_title("who reads it"),
        *_folded(groups.reader_of(groups.readers_of(group), partition) or "nobody", width),
    ]
    lines += [*_title("where it stands"), *_folded(stands, width)]
    if partition.time_lag_ms:
        lines += _folded(f"the first of them has waited for {span(partition.time_lag_ms / 1000)}", width)
    if partition.lost_records:
        lines += _folded(f"{counted(partition.lost_records, 'record')} before it deleted unread", width, Tone.BAD)
    for held in view.board.frame.holding:
        if held.partition == partition.name:
            text = f"a transaction holds back committed records from {count(held.start_offset)} on: Z on Partitions (4)"
            lines += _folded(text, width, Tone.WARN)
    lines += _folded(partition.error, width, Tone.BAD) if partition.error else []
    is_held = view.board.standstills.holds_up(group.name, partition)
    if partition.reason is Reason.STANDS_STILL and not is_held:
        lines += [*_title("what to do"), *_folded(groups.LOOK_AT_MEMBERS, width)]
    if partition.status.is_trouble and partition.committed_offset is not None and view.target is not None:
        shown = view.off_board.record_at(partition.topic, partition.partition, partition.committed_offset)
        lines += [*_title("the record that comes next"), *_record(shown, width)]
        at = f"--partition {partition.partition} --offset {partition.committed_offset} -n 1".split()
        lines += _folded(command_text(["consume", partition.topic, *at], view.target), width, Tone.QUIET)
        if is_held:
            known = None if shown is None else shown.record
            to = ("--shift-by", "1") if known is None else ("--to-offset", str(known.offset + 1))
            step = group.name, "--topic", f"{partition.topic}:{partition.partition}", *to, "--execute"
            lines += _title(f"step over it{', once its members are stopped' if partition.consumer_id else ''}: O, or")
            lines += _folded(command_text(["groups", "reset-offsets", *step], view.target), width, Tone.QUIET)
    return lines


def _record(shown: ShownRecord | None, width: int) -> list[Line]:
    """Return a record that was asked for: its place and time, then key, headers and value as text."""
    if shown is None:
        return [line("enter shows it, or")]
    if shown.record is None:
        none = "reading it …" if shown.is_loading else "there is none: the log ends here"
        return _folded(shown.error or none, width, Tone.BAD if shown.error else Tone.QUIET)
    record = shown.record
    at = date_time(record.timestamp_ms) if record.timestamp_ms >= 0 else "no time"
    lines = [line((f"offset {count(record.offset)}", Tone.STRONG), f"  {at}, {size(len(record.value or b''))}")]
    parts = [("key", record.key), *((f"header {plain(key)}", value) for key, value in record.headers[:_ROWS])]
    for name, content in (*parts, ("value", record.value)):
        text = "null" if content is None else content[:_BYTES_MAX].decode("utf-8", "backslashreplace")
        more = len(content or b"") - _BYTES_MAX
        rest = f" … and {counted(more, 'more byte')}" if more > 0 else ""
        lines += folded(line((f"{name:<6} ", Tone.QUIET), plain(text), (rest, Tone.QUIET)), width)
    return lines


def _query(view: View, row: QueryRow, width: int) -> list[Line]:
    status = groups.status_cell(row.status)
    lines = [line((plain(row.name), Tone.STRONG), "  ", status, f"  {plain(spark.why_of_row(row))}")]
    lines += _what_to_do(view, "spark", row, width)
    lines += [] if row.lag is None else _furthest_behind(row.lag.partitions, width)
    lines += _title("where its offsets stand")
    lines += _folded(f"{spark.KINDS.get(row.job.kind, row.job.kind.value)} {row.job.path}", width)
    return [*lines, *_events_of(view.board, lambda event: event.subject == row.name)]


def _move(view: View, move: MoveItem, width: int) -> list[Line]:
    to = "" if move.broker is None else f" to broker {move.broker}"
    lines = [line((plain(str(move.name)), Tone.STRONG), f"{to}  {move.state}")]
    lines += _what_to_do(view, "reassignments", move, width)
    if move.copy is not None:
        samples = view.board.history.copied_bytes.of((move.name, move.copy.broker))
        lines += _chart(view, "copied", [sample.value for sample in samples], width, size, top=move.copy.total_bytes)
        rate = NOTHING if move.copy.rate is None else byte_rate(move.copy.rate)
        lines += [(), line(("rate  ", Tone.QUIET), rate)]
        lines += _folded(why, width, Tone.QUIET) if (why := why_of_copy(move.copy)) else []
    return [*lines, *_events_of(view.board, lambda event: _is_about(event, move.name))]


def _event(view: View, numbered: tuple[int, Event], width: int) -> list[Line]:
    """Everything that happened to the same thing: one event alone seldom explains itself."""
    event = numbered[1]
    if (incident := view.board.incident_of(numbered)) is not None:
        return _incident(view, incident, width)
    if (run := timeline.run_of(view, numbered)) is not None:
        return _run(view, numbered, run)
    lines = [line((plain(event.subject), Tone.STRONG))]
    topic = next((known for known in view.board.topics if known.name == event.topic), None)
    items = [] if topic is None else view.board.items_of(topic)
    for item in items:
        if item.partition.partition == event.partition:
            return _partition(view, item, width)
    return [*lines, *_events_of(view.board, lambda other: other.subject == event.subject)]


def _run(view: View, numbered: tuple[int, Event], run: Run) -> list[Line]:
    """Each of what came at the same moment, as far as there is room."""
    kind, events = kind_cell(run.event), view.board.events_of_run(numbered[0])
    lines = [line((kind.text, kind.tone), f"  {counted(run.count, 'time')}  ", (plain(run.reason), Tone.QUIET)), line()]
    shown = [event for _, event in events[: 2 * _ROWS]]
    lines += [line((f"{plain(event.subject)}  ", Tone.STRONG), plain(change_text(event))) for event in shown]
    rest = len(events) - len(shown)
    return [*lines, line((f"and {counted(rest, 'other')}", Tone.QUIET))] if rest else lines


def _incident(view: View, incident: Incident, width: int) -> list[Line]:
    """What failed, what followed, who took over, and which replicas are still out of sync."""
    cause, board = incident.cause, view.board
    lasted = span(incident.lasted_s(board.frame.at_ms))
    is_over = incident.ended_ms is not None
    course = (f"over after {lasted}", Tone.GOOD) if is_over else (f"ongoing for {lasted}", Tone.BAD)
    lines = [line((plain(cause.subject), Tone.STRONG), f"  {kind_cell(cause).text}  ", course)]
    lines += _title("what followed")
    lines += [line(effect) for effect in timeline.effects_of(incident)] or [line(("nothing", Tone.QUIET))]
    if incident.new_leaders:
        lines += _title("who leads instead")
        taken = incident.new_leaders.most_common(_ROWS)
        lines += _bars([(f"broker {broker}", led, counted(led, "partition")) for broker, led in taken], width)
    if incident.out:
        out = nsmallest(_ROWS, incident.out)
        rest = len(incident.out) - len(out)
        names = ", ".join(map(str, out)) + (f", and {counted(rest, 'other')}" if rest else "")
        lines += [*_title("still out of sync"), *_folded(names, width)]
    return [*lines, *_events_of(board, lambda other: other.subject == cause.subject)]


def _znode(view: View, znode: Any, width: int) -> list[Line]:
    lines = [line((plain(znode.path), Tone.STRONG)), ()]
    if znode.complaint:
        return [*lines, *_folded(znode.complaint, width, Tone.WARN)]
    text = zookeeper.value_text(znode.data)
    if not isinstance(znode.data, str) and text:
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return [*lines, *(part for splitline in text.splitlines() for part in _folded(splitline, width))]


_ONE_TEXT = ("clusters", "zookeeper", "logs", "group")
"""Their texts have no parts, or commands that are copied."""
_ASIDES: Mapping[str, Aside] = {
    "clusters": clusters.aside,
    "brokers": _broker,
    "topics": _topic,
    "partitions": _partition,
    "partition": _replica_of_partition,
    "groups": _group,
    "group": _group_partition,
    "spark": _query,
    "reassignments": _move,
    "timeline": _event,
    "zookeeper": _znode,
    "logs": lambda view, item, width: [part for entry in logs.whole(item) for part in folded(entry, width)],
}
