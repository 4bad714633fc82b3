"""What the keys for plans mean: which plan to make, and what to do with the open one. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from engine.admin.cluster.errors import BadRequest
from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.plan_runs import Verb
from plans.options import Strategy
from tui.offers import Ask, FieldNeeded, NotNow, Offer, offer_for, topic_gone, topics_of
from tui.operations.plans import CancelPlan, CarryOutPlan, CheckPlan, PlanHistory, ThrottlePlan, run_asked_for
from tui.operations.topics import size_of
from tui.pages.page import View
from tui.plan_desk import PlanDesk
from tui.plan_forms import ask_for_plan


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
    return CheckPlan(desk.plan) if action_id == "plan.check" else _carry_out(_VERBS[action_id], desk)


def _throttle(desk: PlanDesk) -> Offer:
    run = desk.run
    assert run is not None

    def build(values: Mapping[str, str]) -> ThrottlePlan:
        rate = size_of("the throttle", values["rate"])
        if rate is None:
            raise BadRequest("give a throttle, such as 50M")
        return ThrottlePlan(run.run, ThrottleRange.of(rate), desk.set_throttle)

    now = "" if run.run.throttle is None else str(run.run.throttle.start)
    return Ask("Change the throttle of the plan", (FieldNeeded("rate", "Bytes a second", now, "50M"),), build)


def _carry_out(verb: Verb, desk: PlanDesk) -> Offer:
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
        return NotNow("put the cursor on a broker that is down" if is_overview else "choose the brokers to empty")
    return ask_for_plan(Strategy.DECOMMISSION, folder, ",".join(str(item.id) for item in items))


def _replace(folder: Path, view: View, items: Sequence[Any]) -> Offer:
    if not items:
        return NotNow("choose the broker to replace")
    return ask_for_plan(Strategy.REPLACE, folder, ",".join(f"{item.id}=" for item in items))


def _move(folder: Path, view: View, items: Sequence[Any]) -> Offer:
    return _of_topics(Strategy.MOVE, folder, view, items)


def _raise_factor(folder: Path, view: View, items: Sequence[Any]) -> Offer:
    return _of_topics(Strategy.FACTOR, folder, view, items)


def _of_topics(strategy: Strategy, folder: Path, view: View, items: Sequence[Any]) -> Offer:
    if (gone := topic_gone(view, items)) is not None:
        return gone
    topics = topics_of(view, items)
    if not topics:
        return NotNow("choose a topic")
    return ask_for_plan(strategy, folder, topics=" ".join(re.escape(topic) for topic in topics))


def _rebalance(folder: Path, view: View, items: Sequence[Any]) -> Offer:
    return ask_for_plan(Strategy.REBALANCE, folder)


_FROM_ROWS: Mapping[str, Callable[[Path, View, Sequence[Any]], Offer]] = {
    "plan.retire": _retire,
    "plan.replace": _replace,
    "plan.move": _move,
    "plan.factor": _raise_factor,
    "plan.rebalance": _rebalance,
}
"""Plans that start from rows of another screen."""

PLAN_CHANGES = frozenset({*_VERBS, "plan.cancel", "plan.throttle", "plan.stop"})
"""Actions that change the cluster."""
