"""Reads what brokers' state-change logs say about the partition of the logs screen."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.common.model import TopicPartition
from tui.main_view import MainView
from tui.operations.operation import EXPECTED, failure_text
from tui.pages.logs import NO_LOGS, ShownLog

if TYPE_CHECKING:
    from engine.admin.cluster.target import ClusterTarget

log = logging.getLogger(__name__)


class PartitionLogs:
    """Keeps what was read last. A thread reads the logs, and the dashboard goes on drawing."""

    def __init__(self, screen: MainView) -> None:
        self._screen = screen
        self.shown: ShownLog | None = None

    def read(self, name: TopicPartition) -> None:
        """Begin to read; what was read before of this partition stays until the new result is there."""
        target = self._screen.dashboard.session.target
        places = () if target is None else target.logs
        if not places:
            self.shown = ShownLog(name, error=NO_LOGS)
            return
        if self.shown is None or self.shown.name != name or self.shown.log is None:
            self.shown = ShownLog(name, is_loading=True)
        reading = self._read(target, name, places)
        self._screen.run_worker(reading, name="partition-log", group="partition-log", exclusive=True)

    async def _read(self, target: ClusterTarget | None, name: TopicPartition, places: Sequence[str]) -> None:
        # Its import is slow, and it is seldom needed.
        from engine.admin.state_changes.partition_log import partition_log

        try:
            shown = ShownLog(name, await partition_log(_paths(places), name))
        except Exception as error:
            text = failure_text(error)
            is_odd = not isinstance(error, EXPECTED)
            log.warning("The state-change logs could not be read. partition=%s error=%s", name, text, exc_info=is_odd)
            shown = ShownLog(name, error=text)
        if self._screen.dashboard.session.target is not target:
            return  # these logs belong to another cluster
        self.shown = shown
        if self._screen.location.page == "logs":
            self._screen.draw(is_new_data=False)


def _paths(places: Sequence[str]) -> list[Path]:
    return [Path(place).expanduser() for place in places]
