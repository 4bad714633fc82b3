"""Plans, before they are made: the form of each strategy, and which rows of other screens fill it in. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engine.admin.cluster.errors import BadRequest
from engine.common.quantities import parse_duration_s, parse_rate, parse_size
from plans import options
from plans.errors import BadOption
from plans.options import BrokerCapacity, LogDirCapacity, PlanOptions, Strategy, parse_capacities
from tui.operations.topics import quantity, whole_number
from tui.pages.page import View
from tui.remedies import planner_words
from tui.screen.offers import Ask, FieldNeeded, NotNow, Offer, PlanWish, topic_gone, topics_of

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
    return {"brokers": options.broker_ids(text, what)}


def _replacements(text: str, what: str) -> dict[str, Any]:
    return {"replacements": options.replacements(text, what)}


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
                aim=options.aims(aim, "level what") if aim.strip() else None,
                topics=_regexes(values["topics"]),
                exclude_topics=_regexes(values["exclude_topics"]),
                exclude_brokers=options.broker_ids(excluded, "brokers left out") if excluded.strip() else (),
                pins=tuple(values["pins"].split()),
                minimise=options.minimise(least, "fewest") if least else None,
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
    """Return the path that the user typed; raises BadRequest if it names nothing."""
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


# Which plan to make


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


FROM_ROWS: Mapping[str, Callable[[Path, View, Sequence[Any]], Offer]] = {
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
