"""Who was controller, with which epoch, and who continued after another had taken over."""

from __future__ import annotations

from datetime import timedelta

from engine.admin.state_changes.findings import Check, FindingBook
from engine.admin.state_changes.zones import shifted
from engine.kafka.formats.state_change_events import OldController

_HANDOVER = timedelta(seconds=1)
"""How long lines of the old controller may follow those of the new one: threads end, and clocks differ a little."""


class ControllerTracking:
    """Follows the controllers."""

    def __init__(self, book: FindingBook) -> None:
        self._book = book
        self._ids: dict[int, int] = {}
        self._latest_epoch = -1
        self._latest_since = b""

    def controller_line(self, start: bytes, broker_id: int, controller_epoch: int) -> None:
        """A controller has written a line."""
        known = self._ids.setdefault(controller_epoch, broker_id)
        if known != broker_id:
            example = f"brokers {known} and {broker_id} both with controller epoch {controller_epoch}"
            self._book.note(Check.TWO_CONTROLLERS, start, example)
        if controller_epoch > self._latest_epoch:
            if self._latest_epoch >= 0:
                before = self._ids[self._latest_epoch]
                example = f"broker {broker_id} with controller epoch {controller_epoch}, after broker {before}"
                self._book.note(Check.CONTROLLER_CHANGES, start, example)
            self._latest_epoch, self._latest_since = controller_epoch, start
        elif controller_epoch < self._latest_epoch and start > shifted(self._latest_since, _HANDOVER):
            example = (
                f"broker {broker_id} wrote as controller with epoch {controller_epoch}, "
                f"while broker {self._ids[self._latest_epoch]} had {self._latest_epoch}"
            )
            self._book.note(Check.STALE_CONTROLLER, start, example)

    def request_refused(self, start: bytes, event: OldController, broker_id: int | None) -> None:
        """A broker turned a controller's request away."""
        controller = "a controller" if event.controller_id is None else f"controller {event.controller_id}"
        example = (
            f"broker {broker_id} turned {controller} away: its epoch {event.controller_epoch} is older than "
            f"{event.latest_epoch}"
        )
        self._book.note(Check.STALE_CONTROLLER, start, example)
