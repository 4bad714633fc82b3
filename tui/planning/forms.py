"""Plans, before they are made or carried out: the form of each strategy, and what the keys for plans mean. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.admin.cluster.errors import BadRequest
from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.plan_runs import Verb
from engine.common.quantities import parse_duration_s, parse_rate, parse_size
from plans import option_texts
from plans.capacity_file import parse_capacities
from plans.errors import BadOption
from plans.options import BrokerCapacity, LogDirCapacity, PlanOptions, Strategy
from tui.operations.plans import CancelPlan, CarryOutPlan, CheckPlan, PlanHistory, ThrottlePlan, run_asked_for
from tui.operations.topics import quantity, whole_number
from tui.pages.page import View
from tui.planning.words import planner_words
from tui.screen.offers import Ask, FieldNeeded, NotNow, Offer, PlanWish, offer_for, topic_gone, topics_of

if TYPE_CHECKING:
    from tui.planning.desk import PlanDesk

STRATEGIES: Mapping[Strategy, str] = {
    Strategy.REBALANCE: "level replicas and leaders, or bytes",
    Strategy.DECOMMISSION: "empty brokers, so that they can be removed",
    Strategy.REPLACE: "move what a broker has to another one",
    Strategy.EXPAND: "fill new brokers",
    Strategy.RACKS: "repair partitions with too few racks",
    Strategy.FACTOR: "raise or lower the replication factor",
    Strategy.MOVE: "move topics to a list of brokers",
    Strategy.LEADERS: "level the leaders; nothing is copied",
    Strategy.LOG_DIRS: "level the disks inside each broker",
}
"""What each strategy is for."""


def ask_for_plan(strategy: Strategy, folder: Path, first: str = "", topics: str = "", aim: str = "") -> Ask:
    """Return the form of a strategy. ``first`` prefills its own argument, ``topics`` the topics that move.

    A file named without a folder is in ``folder``.
    """
    fields = []
    own = _ARGUMENTS.get(strategy)
    if own is not None:
        fields.append(FieldNeeded("argument", own.label, first, own.hint))
    if strategy is not Strategy.LEADERS:
        fields.append(FieldNeeded("aim", "Level what", aim, "replicas,leaders,bytes; empty: the default"))
    fields += [
        FieldNeeded("topics", "Only topics", topics, "orders.* invoices; empty: all"),
        FieldNeeded("exclude_topics", "Not topics", "", "these count as load and do not move"),
        FieldNeeded("exclude_brokers", "Not to brokers", "", "3,4: never a target"),
        FieldNeeded("pins", "Stay as they are", "", "orders-0 orders-1"),
        FieldNeeded("max_moves", "Moves at most", "", "the best of them; empty: no cap"),
        FieldNeeded("max_bytes", "Bytes at most", "", "200GB; empty: no cap"),
        FieldNeeded("minimise", "Fewest", "", "moves or bytes; empty: bytes if known"),
        FieldNeeded("throttle", "Throttle", "", "50M a second, for the time it takes"),
        FieldNeeded("tolerance", "Tolerance", "", "10: percent around the mean; empty: 5"),
        FieldNeeded("capacity", "Capacities", "", "TOML file of what brokers may hold"),
        FieldNeeded("time_limit", "Time limit", "", "30s for the solver; empty: none"),
        FieldNeeded("dead", "Dead brokers", "", "keep their replicas there; empty: move them"),
    ]
    return Ask(f"Plan: {STRATEGIES[strategy]}", tuple(fields), partial(_wish, strategy, folder))


@dataclass(frozen=True, slots=True)
class _Argument:
    """A strategy's own argument: its question, and the options that follow from it."""

    label: str
    hint: str
    read: Callable[[str, str], dict[str, Any]]


def _brokers(text: str, what: str) -> dict[str, Any]:
    return {"brokers": option_texts.broker_ids(text, what)}


def _replacements(text: str, what: str) -> dict[str, Any]:
    return {"replacements": option_texts.replacements(text, what)}


def _factor(text: str, what: str) -> dict[str, Any]:
    factor = whole_number(what, text)
    if factor is None or factor < 1:
        raise BadRequest(f"{what} must be a number of at least 1")
    return {"replication_factor": factor}


_ARGUMENTS: Mapping[Strategy, _Argument] = {
    Strategy.DECOMMISSION: _Argument("Brokers to empty", "7 or 7,8", _brokers),
    Strategy.REPLACE: _Argument("Old=new", "7=8 or 7=8,9=10", _replacements),
    Strategy.EXPAND: _Argument("New brokers", "4,5", _brokers),
    Strategy.FACTOR: _Argument("Replicas", "of each partition", _factor),
    Strategy.MOVE: _Argument("To brokers", "4,5,6", _brokers),
    Strategy.LOG_DIRS: _Argument(
        "Brokers", "only of these; empty: all", lambda text, what: _brokers(text, what) if text.strip() else {}
    ),
}


def _wish(strategy: Strategy, folder: Path, values: Mapping[str, str]) -> PlanWish:
    """Return the wish from a form; raises BadRequest."""
    own = _ARGUMENTS.get(strategy)
    aim, excluded, least = values.get("aim", ""), values["exclude_brokers"], values["minimise"].strip()
    capacity = values["capacity"].strip()
    try:
        brokers, log_dirs = _capacities(folder, capacity) if capacity else ((), ())
        return PlanWish(
            strategy,
            PlanOptions(
                aim=option_texts.aims(aim, "level what") if aim.strip() else None,
                topics=_regexes(values["topics"]),
                exclude_topics=_regexes(values["exclude_topics"]),
                exclude_brokers=option_texts.broker_ids(excluded, "brokers left out") if excluded.strip() else (),
                pins=tuple(values["pins"].split()),
                minimise=option_texts.minimise(least, "fewest") if least else None,
                max_moves=whole_number("moves at most", values["max_moves"]),
                max_bytes=quantity(parse_size, "bytes at most", values["max_bytes"]),
                throttle=quantity(parse_rate, "the throttle", values["throttle"]) or None,
                tolerance_percent=_tolerance(values["tolerance"]),
                broker_capacities=brokers,
                log_dir_capacities=log_dirs,
                time_limit_s=quantity(parse_duration_s, "time limit", values["time_limit"]),
                keep_dead=_keeps_dead(values["dead"]),
                **({} if own is None else own.read(values["argument"], own.label.lower())),
            ),
            path_named(folder, capacity) if capacity else None,
        )
    except BadOption as error:
        raise BadRequest(planner_words(str(error)), hint=planner_words(error.hint or "") or None) from error


def _tolerance(text: str) -> float:
    try:
        percent = float(text.strip().removesuffix("%") or PlanOptions().tolerance_percent)
    except ValueError:
        percent = -1.0
    if not 0 <= percent < math.inf:
        raise BadRequest(f"the tolerance must be a percentage of at least 0, such as 10, not {text.strip()!r}")
    return percent


def _keeps_dead(text: str) -> bool:
    if text.strip().lower() not in ("", "keep"):
        raise BadRequest(f"dead brokers must be keep or empty, not {text.strip()!r}")
    return bool(text.strip())


def _capacities(folder: Path, name: str) -> tuple[tuple[BrokerCapacity, ...], tuple[LogDirCapacity, ...]]:
    path = path_named(folder, name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"the capacities cannot be read: {error}") from error
    return parse_capacities(text, str(path))


def path_named(folder: Path, text: str) -> Path:
    """Return the path that a person typed; raises BadRequest if it names nothing."""
    if not text.strip():
        raise BadRequest("name a file")
    try:
        return folder / Path(text.strip()).expanduser()
    except RuntimeError as error:
        raise BadRequest(f"the home folder is unknown: {text.strip()}") from error


def _regexes(text: str) -> tuple[str, ...]:
    for word in text.split():
        try:
            re.compile(word)
        except re.error as error:
            raise BadRequest(f"not a pattern of topics: {word!r}: {error}") from error
    return tuple(text.split())


# The keys for plans: which plan to make, and what to do with the open one


def plan_offer(action_id: str, desk: PlanDesk, view: View, items: Sequence[Any]) -> Offer:
    """Return what an action about plans means."""
    if action_id in _FROM_ROWS:
        return _FROM_ROWS[action_id](desk.folder, view, items)
    if action_id == "plan.history":
        return PlanHistory(desk.folders)
    if action_id == "plan.throttle" and (desk.run is None or not desk.run.is_under_way):
        # Another klamm carries it out, or nobody does any more: moves under way can be throttled anyway.
        return offer_for("reassignment.throttle", view, items)
    if desk.plan is None or desk.plan.error:
        return NotNow("no plan is open: N makes one, o opens a file")
    if action_id == "plan.cancel":
        tells = partial(desk.note_cancelled, desk.plan)
        return CancelPlan(desk.plan, desk.stop, tells, desk.run is not None and desk.run.is_under_way)
    if action_id == "plan.throttle":
        return _throttle(desk)
    if desk.plan.file is None:
        return NotNow("this file has Kafka's form, and the dashboard carries out klamm's plans only: N makes one")
    return CheckPlan(desk.plan) if action_id == "plan.check" else carry_out(_VERBS[action_id], desk)


def _throttle(desk: PlanDesk) -> Offer:
    run = desk.run
    assert run is not None

    def build(values: Mapping[str, str]) -> ThrottlePlan:
        rate = quantity(parse_rate, "the throttle", values["rate"])
        if rate is None:
            raise BadRequest("give a throttle, such as 50M")
        return ThrottlePlan(run.run, ThrottleRange.of(rate), desk.set_throttle)

    now = "" if run.run.throttle is None else str(run.run.throttle.start)
    return Ask("Change the throttle of the plan", (FieldNeeded("rate", "Bytes a second", now, "50M"),), build)


def carry_out(verb: Verb, desk: PlanDesk) -> Offer:
    """Return the form before the open plan is carried out, or why it cannot be."""
    plan = desk.plan
    assert plan is not None
    assert plan.file is not None
    if desk.run is not None and desk.run.is_under_way:
        return NotNow("a plan is being carried out: Z stops it, C cancels it")
    if not plan.targets:
        return NotNow("there is nothing to do")
    if plan.path is None and verb is not Verb.APPLY:
        return NotNow("this plan was made just now: there is nothing to resume, A applies it")
    last = None if verb is Verb.APPLY else desk.last_throttle()
    advice = plan.file.klamm.throttle if last is None else last
    fields = [
        FieldNeeded("throttle", "Throttle", str(advice or ""), "50M a second; empty: full speed"),
        FieldNeeded("wave_replicas", "Replicas a wave", "10", "into a broker and out of one"),
        FieldNeeded("wave_bytes", "Bytes a wave", "", "100G into or out of a broker; empty: no cap"),
        FieldNeeded("stall", "Stalled after", "5m", "it stops after this time without progress"),
    ]
    if plan.path is None:
        fields.insert(0, FieldNeeded("file", "Saved as", str(desk.new_path()), "journal and rollback go beside it"))

    def build(values: Mapping[str, str]) -> CarryOutPlan:
        path = plan.path or desk.checked_path(values["file"])
        return CarryOutPlan(plan, run_asked_for(verb, plan, path, values), desk.save_as, desk.begin)

    return Ask(f"{verb.value.capitalize()} {plan.name}", tuple(fields), build)


_VERBS = {"plan.apply": Verb.APPLY, "plan.resume": Verb.RESUME, "plan.rollback": Verb.ROLLBACK}


def _retire(folder: Path, view: View, items: Sequence[Any]) -> Offer:
    if not items:
        is_overview = view.location.page == "overview"
        return NotNow("put the cursor on the problem of a broker" if is_overview else "choose the brokers to empty")
    return ask_for_plan(Strategy.DECOMMISSION, folder, ",".join(str(item.id) for item in items))


def _replace(folder: Path, view: View, items: Sequence[Any]) -> Offer:
    if not items:
        return NotNow("choose the broker to replace")
    return ask_for_plan(Strategy.REPLACE, folder, ",".join(f"{item.id}=" for item in items))


def _of_topics(strategy: Strategy, folder: Path, view: View, items: Sequence[Any]) -> Offer:
    if (gone := topic_gone(view, items)) is not None:
        return gone
    topics = topics_of(view, items)
    if not topics:
        return NotNow("choose a topic")
    return ask_for_plan(strategy, folder, topics=" ".join(re.escape(topic) for topic in topics))


_FROM_ROWS: Mapping[str, Callable[[Path, View, Sequence[Any]], Offer]] = {
    "plan.retire": _retire,
    "plan.replace": _replace,
    "plan.move": partial(_of_topics, Strategy.MOVE),
    "plan.factor": partial(_of_topics, Strategy.FACTOR),
    # On the overview the items are those of a disk that fills up.
    "plan.rebalance": lambda folder, view, items: ask_for_plan(
        Strategy.REBALANCE, folder, aim="bytes" if view.location.page == "overview" and items else ""
    ),
}
"""Plans that start from rows of another screen."""
