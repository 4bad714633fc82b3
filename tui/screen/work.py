"""What the dashboard does with a cluster apart from showing frames: operations, znodes. Plans have their own desk.

All of it runs in workers, so the dashboard keeps drawing. A worker never touches what another one has begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.target import ClusterTarget, Side
from engine.admin.reassignment.journal import UnfinishedPlan, unfinished_plans
from engine.admin.reassignment.lock import read_holder
from engine.common.model import TopicPartition
from tui.dialogs.confirm import ConfirmDialog, OutcomeDialog
from tui.dialogs.dialog import WaitDialog
from tui.dialogs.form import FormDialog
from tui.drawing.cells import Tone
from tui.drawing.lines import line
from tui.operations.operation import EXPECTED, Operation, Prepared, beside_plan, failure_text
from tui.pages.logs import NO_LOGS
from tui.screen.offers import Ask, EditSettings, NotNow, Offer, PlanWish
from tui.screen.page_screen import PageScreen
from tui.state.off_board import ShownLog, ShownRecord, ZnodeLevel

if TYPE_CHECKING:
    from tui.dialogs.settings import SettingsDialog

    Form = FormDialog | SettingsDialog

log = logging.getLogger(__name__)

LOOK_FOR_PLANS_S, LOOK_FOR_QUOTA_S = 30.0, 5.0


class Work:
    """Carries out what a user requests on the main screen; ``make_plan`` has the plan desk make a plan for a form."""

    def __init__(self, screen: PageScreen, make_plan: Callable[[PlanWish, Form], None]) -> None:
        self._screen = screen
        self._make_plan = make_plan
        self._looked_s: dict[str, float] = {}
        """When it was looked for what, last."""

    # Operations

    def offer(self, offer: Offer) -> None:
        """Ask for what an operation needs, then begin it; or say why it cannot be done."""
        screen = self._screen
        if isinstance(offer, NotNow):
            screen.tell(offer.why, is_error=True)
        elif isinstance(offer, Ask | EditSettings):
            # What Kafka's settings mean is a slow import.
            from tui.dialogs.settings import SettingsDialog

            form = FormDialog(offer) if isinstance(offer, Ask) else SettingsDialog(offer)
            screen.app.push_screen(form, lambda operation: self._begin(operation, form))
            if form.reads:
                screen.run_in_background(self._fill(form), name="read for a form", group="forms", exclusive=True)
        else:
            self._begin(offer)

    async def _fill(self, form: Form) -> None:
        """Tell a form what it wants to know of the cluster; it is open meanwhile."""
        session = self._screen.dashboard.session
        if session.target is None:
            return
        try:
            async with session.connection(session.target) as cluster:
                await form.fill(cluster)
        except EXPECTED as error:
            form.not_filled(failure_text(error))

    def _begin(self, operation: Operation | PlanWish | None, form: Form | None = None) -> None:
        if isinstance(operation, PlanWish):
            assert form is not None, "a form asks for what a plan needs"
            self._make_plan(operation, form)
        elif operation is not None:
            self._screen.run_in_background(self._carry_out(operation, form), name=operation.title, group="operations")

    async def _carry_out(self, operation: Operation, form: Form | None) -> None:
        """Prepare, ask, run, and report; a failure stays on the screen until the user closes it.

        If it cannot be done at all, the form comes back with what was typed, and with why not.
        """
        session = self._screen.dashboard.session
        target = session.target
        if target is None:
            return
        command, refused = "", form
        try:
            async with session.connection(target) as cluster:
                waiting = self._waiting(operation.title, "asking the cluster what would happen …")
                async with waiting, asyncio.timeout(cluster.timeout_s):
                    prepared = await beside_plan(await operation.prepare(cluster), cluster)
                command, refused = prepared.command, None
                if prepared.run is None and prepared.begins is None:
                    lines = [line(text) for text in (prepared.question, *prepared.lines)]
                    self._screen.show_text(operation.title, lines, command)
                    return
                if operation.asks and not await self._confirmed(prepared):
                    self._screen.tell("nothing was changed")
                    return
                log.info("%s begins. cluster=%s command=%s", operation.title, target.name, command)
                if (begins := prepared.begins) is not None:
                    if session.target is not target:
                        why = f"the dashboard has switched to another cluster than {target.name}; nothing was started"
                        raise BadRequest(why)
                    begins()
                    return
                assert prepared.run is not None
                # What was sent goes on in the cluster, so nothing cancels it: each part has the cluster's time-out.
                async with self._waiting(operation.title, "under way …"):
                    outcome = await prepared.run(cluster)
                log.info("%s is done.", operation.title)
        except Exception as error:
            text = failure_text(error)
            log.warning("%s failed: %s", operation.title, text, exc_info=not isinstance(error, EXPECTED))
            if refused is not None:
                self.offer(refused.again(text))
            else:
                self._screen.show_text(f"{operation.title}: failed", [line((text, Tone.BAD))], command)
            return
        entity = getattr(operation, "entity", None)
        if entity is not None and entity.type.is_of_clients:
            await self._look_for_quota()
        session.feed.refresh()
        await self._screen.app.push_screen(OutcomeDialog(outcome, command))

    async def _confirmed(self, prepared: Prepared) -> bool:
        answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        await self._screen.app.push_screen(ConfirmDialog(prepared), answer.set_result)
        return bool(await answer)

    @asynccontextmanager
    async def _waiting(self, title: str, what: str) -> AsyncIterator[None]:
        dialog = WaitDialog(title, what)
        await self._screen.app.push_screen(dialog)
        try:
            yield
        finally:
            dialog.finish()

    # What is read on demand

    def look_beyond_frames(self) -> None:
        """Find out, now and then, what no frame holds: a plan that was stopped, a quota that holds producers back."""
        app, now_s = self._screen.dashboard, self._screen.dashboard.session.clock()
        if app.session.target is None or not app.board.has_metadata:
            return
        looks = {"stopped plan": (self._look_for_stopped_plan, LOOK_FOR_PLANS_S)}
        if app.board.filling or app.board.producer_quota is not None:
            looks["quota"] = self._look_for_quota, LOOK_FOR_QUOTA_S
        for name, (look, every_s) in looks.items():
            if now_s - self._looked_s.get(name, -every_s) >= every_s:
                self._looked_s[name] = now_s
                self._screen.run_in_background(look(), name=name, group=name)

    async def _look_for_quota(self) -> None:
        from engine.admin.configs.quota_reading import quotas_of
        from tui.operations.settings import ALL_CLIENTS

        session, board = self._screen.dashboard.session, self._screen.dashboard.board
        assert session.target is not None
        try:
            async with asyncio.timeout(session.timeout_s), session.connection(session.target) as cluster:
                quota = (await quotas_of(cluster, ALL_CLIENTS)).get("producer_byte_rate")
        except NotFound:
            quota = None
        except EXPECTED:
            # It is not known whether there still is one.
            return
        board.note_quota(quota if isinstance(quota, float) else None)

    async def _look_for_stopped_plan(self) -> None:
        """Find out whether a plan of this cluster was stopped and is not being carried out now."""
        session, board = self._screen.dashboard.session, self._screen.dashboard.board
        target = session.target
        cluster = board.frame.cluster
        if target is None or cluster is None or self._screen.off_board.is_plan_under_way:
            return
        plan = await asyncio.to_thread(_stopped_plan, session.folder, cluster.cluster_id)
        if plan is not None:
            try:
                async with session.connection(target) as opened:
                    plan = None if await read_holder(opened) is not None else plan
            except EXPECTED:
                # It is not known whether it is being carried out.
                return
        board.note_plan(plan)

    def read_znodes(self, path: str) -> None:
        screen = self._screen
        target = screen.dashboard.session.target
        if target is None or not target.may_ask_zookeeper or target.via is Side.WIRE:
            none = "no ZooKeeper is named for this cluster, so there is nothing to read"
            screen.off_board.znodes = ZnodeLevel(path, error=none)
            return
        screen.off_board.znodes = ZnodeLevel(path, is_loading=True)
        screen.run_in_background(self._znodes(path), name="znodes", group="znodes", exclusive=True)

    async def _znodes(self, path: str) -> None:
        from engine.admin.znodes.tree import get_tree

        screen, session = self._screen, self._screen.dashboard.session
        assert session.target is not None
        try:
            async with asyncio.timeout(session.timeout_s), session.connection(session.target) as cluster:
                znodes = await get_tree(await cluster.zookeeper(), path, depth_max=1)
            level = ZnodeLevel(path, tuple(znodes))
        except EXPECTED as error:
            level = ZnodeLevel(path, error=failure_text(error))
        if screen.location.page == "zookeeper" and (screen.location.path or "/") == path:
            screen.off_board.znodes = level
            screen.draw(is_new_data=False)

    def read_partition_log(self, name: TopicPartition) -> None:
        """Read what brokers' logs say about a partition; what was read before of it stays until the result is there."""
        off_board, target = self._screen.off_board, self._screen.dashboard.session.target
        if target is None or not target.logs:
            off_board.partition_log = ShownLog(name, error=NO_LOGS)
            return
        before = off_board.partition_log
        if before is None or before.name != name or before.log is None:
            off_board.partition_log = ShownLog(name, is_loading=True)
        reading = self._partition_log(target, name)
        self._screen.run_in_background(reading, name="partition-log", group="partition-log", exclusive=True)

    async def _partition_log(self, target: ClusterTarget, name: TopicPartition) -> None:
        # Its import is slow, and it is seldom needed.
        from engine.admin.state_changes.partition_log import partition_log

        try:
            shown = ShownLog(name, await partition_log(_paths(target.logs), name))
        except Exception as error:
            text = failure_text(error)
            is_odd = not isinstance(error, EXPECTED)
            log.warning("The state-change logs could not be read. partition=%s error=%s", name, text, exc_info=is_odd)
            shown = ShownLog(name, error=text)
        if self._screen.dashboard.session.target is not target:
            return  # these logs belong to another cluster
        self._screen.off_board.partition_log = shown
        if self._screen.location.page == "logs":
            self._screen.draw(is_new_data=False)

    def read_record(self, name: TopicPartition, offset: int) -> None:
        """Read the first record of a partition from an offset on."""
        screen = self._screen
        if screen.dashboard.session.target is not None:
            screen.off_board.record = ShownRecord(name, offset, is_loading=True)
            reading = self._record(screen.dashboard.session.target, name, offset)
            screen.run_in_background(reading, name="record", group="record", exclusive=True)

    async def _record(self, target: ClusterTarget, name: TopicPartition, offset: int) -> None:
        # Its import is slow, and it is seldom needed.
        from engine.admin.records.consume import next_record

        session, off_board = self._screen.dashboard.session, self._screen.off_board
        try:
            async with asyncio.timeout(session.timeout_s), session.connection(target) as cluster:
                record = await next_record(await cluster.wire(), name, offset, give_up_s=session.timeout_s)
            shown = ShownRecord(name, offset, record)
        except EXPECTED as error:
            shown = ShownRecord(name, offset, error=failure_text(error))
        off_board.record = shown
        self._screen.draw(is_new_data=False)


def _paths(places: Sequence[str]) -> list[Path]:
    return [Path(place).expanduser() for place in places]


def _stopped_plan(folder: Path, cluster_id: str | None) -> UnfinishedPlan | None:
    """Return the newest plan of the cluster that was begun and not finished."""
    from tui.planning.opened_plan import read_plan_file

    for unfinished_plan in unfinished_plans((folder,)):
        file = read_plan_file(unfinished_plan.path).file
        if file is not None and file.klamm.cluster_id in (None, cluster_id):
            return unfinished_plan
    return None
