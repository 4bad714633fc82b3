"""Every screen, by name."""

from __future__ import annotations

from typing import Any

from tui.pages import (
    brokers,
    clusters,
    groups,
    logs,
    overview,
    partitions,
    reassignments,
    replicas,
    spark,
    timeline,
    topics,
    zookeeper,
)
from tui.pages.page import Page
from tui.state.location import Location
from tui.state.session import Session

_OF_A_CLUSTER = (
    overview.PAGE,
    brokers.PAGE,
    topics.PAGE,
    partitions.PAGE,
    replicas.PAGE,
    groups.PAGE,
    groups.GROUP_PAGE,
    reassignments.PAGE,
    timeline.PAGE,
    spark.PAGE,
    spark.QUERY_PAGE,
    zookeeper.PAGE,
)
"""The screens of one cluster that need no slow import."""


def pages_of(session: Session) -> dict[str, Page]:
    """Return the screens. The session has the clusters and the log that two of them show."""
    apart = (_PLANS, logs.page_of(session.log), clusters.page_of(session.fleet))
    return {page.name: page for page in (*_OF_A_CLUSTER, *apart)}


def _plans() -> Any:
    """Return the module. It imports the planner, so it is imported when it is first needed."""
    from tui.pages import plans

    return plans


_PLANS = Page(
    "plans",
    lambda view: _plans().rows_of(view, view.off_board.plan),
    lambda view, width: _plans().summary_of(view, view.off_board.plan, view.off_board.run, view.cursor_key, width),
    lambda view, item: Location("partitions", topic=item.name.topic, row=str(item.name)),
    lambda view, item: item.state in ("not found", "going elsewhere"),
    lambda view, items: _plans().command_of(view.off_board.plan),
)
