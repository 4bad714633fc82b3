"""Every screen, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tui.lines import Line
from tui.location import Location
from tui.main_view import MainView
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
from tui.pages.page import Page, View
from tui.partition_logs import PartitionLogs
from tui.table_model import Rows

_OF_THE_BOARD = (
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
)
"""These are drawn from the board alone; plans, znodes and logs are read separately, for the main screen."""


def pages_of(screen: MainView, partition_logs: PartitionLogs) -> dict[str, Page]:
    """Return the screens. ``screen`` has the plan and the znodes that two of them show, ``partition_logs`` the logs."""
    read_separately = (_plans(screen), _znodes(screen), _logs(screen, partition_logs))
    fleet = clusters.page_of(screen.dashboard.session.fleet)
    return {page.name: page for page in (*_OF_THE_BOARD, *read_separately, fleet)}


def _plans(screen: MainView) -> Page:
    """It imports the planner, so it waits until somebody needs it."""

    def rows(view: View) -> Rows:
        from tui.pages import plans

        return plans.rows_of(view, screen.desk.plan)

    def summary(view: View, width: int) -> list[Line]:
        from tui.pages import plans

        return plans.summary_of(view, screen.desk.plan, screen.desk.run, screen.model.cursor_key, width)

    def command(view: View, items: Sequence[Any]) -> list[str]:
        from tui.pages import plans

        return plans.command_of(screen.desk.plan)

    return Page(
        "plans",
        rows,
        summary,
        lambda view, item: Location("partitions", topic=item.name.topic, row=str(item.name)),
        lambda view, item: item.state in ("not found", "going elsewhere"),
        command,
    )


def _znodes(screen: MainView) -> Page:
    return Page(
        "zookeeper",
        lambda view: zookeeper.rows_of(screen.znodes),
        lambda view, width: zookeeper.summary_of(screen.znodes, view),
        zookeeper.opens,
        lambda view, item: item.complaint is not None,
        zookeeper.command,
    )


def _logs(screen: MainView, of_partition: PartitionLogs) -> Page:
    ring = screen.dashboard.session.log

    def rows(view: View) -> Rows:
        shown = None if view.location.topic is None else of_partition.shown
        return logs.rows_of(ring) if shown is None else logs.partition_rows(shown)

    def summary(view: View, width: int) -> list[Line]:
        shown = None if view.location.topic is None else of_partition.shown
        return logs.summary_of(ring) if shown is None else logs.partition_summary(shown)

    return Page("logs", rows, summary, is_trouble=lambda view, item: logs.is_trouble(item), command=logs.command)
