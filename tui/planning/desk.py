"""The plan desk: the open plan, the solver that makes one, the run that carries one out.

It owns the tasks of both. A run continues while other screens are shown. It ends with the dashboard; another klamm can
then resume it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.admin.cluster.errors import AdminError, BadRequest
from engine.admin.log_dirs.describing import with_logs
from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.journal import throttle_of_last_run, unfinished_plans
from engine.admin.reassignment.plan_runs import PlanRun, Verb, beside
from engine.admin.reassignment.wave_progress import WaveControl
from engine.admin.reassignment.waves import Wave
from engine.admin.snapshots.taking import take_for_planning
from engine.common.errors import OperationError
from engine.common.quantities import counted, parse_rate
from engine.common.snapshot import ClusterSnapshot
from plans.options import Strategy
from tui.dialogs.confirm import ConfirmDialog, OutcomeDialog
from tui.dialogs.dialog import GO_ON, SAME, ProgressDialog, TextDialog
from tui.dialogs.form import FormDialog
from tui.dialogs.menu import Choice, MenuDialog
from tui.drawing.cells import Tone
from tui.drawing.lines import line
from tui.operations.operation import EXPECTED, Prepared, command_text, failure_text
from tui.operations.plan_commands import running_words
from tui.operations.plans import CancelPlan, CarryOutPlan, CheckPlan, PlanHistory, ThrottlePlan, run_asked_for
from tui.operations.reassignments import typed_rate
from tui.operations.topics import quantity
from tui.pages.page import View
from tui.planning.card import detail_lines, run_outcome
from tui.planning.forms import FROM_ROWS, STRATEGIES, ask_for_plan, path_named
from tui.planning.opened_plan import OpenedPlan, plan_made, read_plan_file
from tui.planning.plan_run import PlanRunState, RunState
from tui.planning.solving import solve_apart
from tui.screen.offers import Ask, FieldNeeded, NotNow, Offer, PlanWish, offer_for
from tui.screen.page_screen import PageScreen
from tui.screen.saving import write_new
from tui.screen.work import Work
from tui.state.location import Location

if TYPE_CHECKING:
    from tui.screen.work import Form

log = logging.getLogger(__name__)

_VERBS = {"plan.apply": Verb.APPLY, "plan.resume": Verb.RESUME, "plan.rollback": Verb.ROLLBACK}


class PlanDesk:
    def __init__(self, screen: PageScreen, work: Work) -> None:
        self._screen = screen
        self._work = work
        self._shown = screen.off_board
        self._control = WaveControl()
        self._execution: asyncio.Task[None] | None = None
        self._untold: OutcomeDialog | None = None

    @property
    def folder(self) -> Path:
        """The folder of files that are named without one."""
        return self._screen.dashboard.session.folder

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where journals may lie: in the working folder, and beside the plan."""
        beside = () if self._shown.plan is None or self._shown.plan.path is None else (self._shown.plan.path.parent,)
        return (self.folder, *beside)

    # Making, opening, saving

    def ask_for_strategy(self) -> None:
        """Let the user choose the strategy, then ask for the rest."""
        choices = [Choice(strategy.value, f"{strategy.value:<14}{text}") for strategy, text in STRATEGIES.items()]
        menu = MenuDialog("Make a plan", choices)
        self._screen.ask(menu, lambda name: self._work.offer(ask_for_plan(Strategy(name), self.folder)))

    def make(self, wish: PlanWish, form: Form) -> None:
        """Make a plan; a window shows the progress, and closing it gives the plan up.

        If there is none, the form that asked for it comes back and says why.
        """
        self._screen.run_in_background(self._make(wish, form), name="plan", group="plan", exclusive=True)

    async def _make(self, wish: PlanWish, form: Form) -> None:
        title = f"Plan: {wish.strategy}"
        dialog = ProgressDialog(title, "reading the cluster …")
        work = asyncio.create_task(self._solved(wish, dialog), name="solve")

        def given_up(_: None) -> None:
            work.cancel()

        await self._screen.app.push_screen(dialog, given_up)
        try:
            await asyncio.wait({work})
        finally:
            # The dashboard may end meanwhile; then no caller waits for the plan, and its connections are closed.
            work.cancel()
            await asyncio.wait({work})
        dialog.finish()
        if work.cancelled():
            self._screen.tell("the plan was given up; nothing was changed")
            return
        error = work.exception()
        if error is None:
            self._show(work.result())
        else:
            text = failure_text(error)
            log.warning("no plan: %s", text, exc_info=None if isinstance(error, EXPECTED) else error)
            self._work.offer(form.again(f"no plan: {text}"))

    async def _solved(self, wish: PlanWish, dialog: ProgressDialog) -> OpenedPlan:
        snapshot = await self._snapshot(dialog)
        topics, brokers = counted(len(snapshot.topics), "topic"), counted(len(snapshot.brokers), "broker")
        dialog.show(f"planning {topics} on {brokers} …")
        made = await solve_apart(snapshot, wish.strategy, wish.options, dialog.show)
        return await asyncio.to_thread(plan_made, made, wish.capacity_file)

    async def _snapshot(self, dialog: ProgressDialog) -> ClusterSnapshot:
        """Read the cluster; in a recording, take the cluster of the current frame."""
        session, frame = self._screen.dashboard.session, self._screen.dashboard.board.frame
        if session.target is not None:
            async with session.connection(session.target) as cluster, asyncio.timeout(session.timeout_s):
                return await take_for_planning(cluster, dialog.note)
        if frame.cluster is None:
            raise OperationError("the cluster is not known yet")
        return with_logs(frame.cluster, frame.logs)

    def _show(self, plan: OpenedPlan) -> None:
        self._shown.plan = plan
        self._screen.go_to(Location("plans"))
        self._screen.draw(is_new_data=False)

    def open_named(self, text: str) -> None:
        try:
            self.open(path_named(self.folder, text))
        except BadRequest as error:
            self._screen.tell(failure_text(error), is_error=True)

    def open(self, path: Path | None, *, resumes: bool = False) -> None:
        """Read a plan file (None: of the run that was stopped or killed last) and show it.

        This is done beside the event loop. With ``resumes`` it then asks how to go on with the plan.
        """
        work = self._open(path, resumes=resumes)
        self._screen.run_in_background(work, name="open a plan", group="open a plan", exclusive=True)

    async def _open(self, path: Path | None, *, resumes: bool) -> None:
        if path is None:
            plans = await asyncio.to_thread(unfinished_plans, self.folders)
            if not plans:
                self._screen.tell("no journal in the working folder belongs to an unfinished plan", is_error=True)
                return
            path = plans[0].path
        self._show(await asyncio.to_thread(read_plan_file, path))
        if resumes:
            self._work.offer(self._run_offer(Verb.RESUME))

    def ask_what_to_open(self) -> None:

        def existing(values: Mapping[str, str]) -> Path:
            path = path_named(self.folder, values["path"])
            if not path.is_file():
                raise BadRequest("no such file", where=str(path))
            return path

        fields = (FieldNeeded("path", "File", "", "a plan of klamm, or a file of kafka-reassign-partitions"),)
        self._screen.ask(FormDialog(Ask("Open a plan", fields, existing)), self.open)

    def ask_where_to_save(self) -> None:
        """Let the user name the file for a plan that was made here."""
        plan = self._shown.plan
        if plan is None or plan.error or plan.file is None:
            self._screen.tell("there is no plan to save: N makes one", is_error=True)
            return
        fields = (FieldNeeded("path", "File", str(plan.path or self.new_path()), "kafka-reassign-partitions takes it"),)
        dialog = FormDialog(Ask(f"Save {plan.name}", fields, lambda values: self.checked_path(values["path"])))

        def named(path: Path) -> None:
            try:
                self.save_as(path)
            except OSError as error:
                self._screen.show_text("Not saved", [line((str(error), Tone.BAD))])
            else:
                self._screen.tell(f"saved: {path}")

        self._screen.ask(dialog, named)

    def save_as(self, path: Path) -> None:
        """Write the open plan to its own file; do not overwrite an existing one."""
        plan = self._shown.plan
        assert plan is not None
        if not self._is_at(path):
            write_new(path, plan.text)
        self._shown.plan = replace(plan, path=path)
        self._screen.draw(is_new_data=False)

    def new_path(self) -> Path:
        """Return the path of a file that does not exist yet."""
        assert self._shown.plan is not None
        assert self._shown.plan.file is not None
        folder, stem = self.folder, f"plan-{self._shown.plan.file.klamm.strategy}"
        numbers = ["", *(f"-{number}" for number in range(2, 1000))]
        return next(path for number in numbers if not (path := folder / f"{stem}{number}.json").exists())

    def checked_path(self, text: str) -> Path:
        """Return where to write a plan; raises BadRequest if there is no such folder, or another file is there."""
        path = path_named(self.folder, text)
        if not path.parent.is_dir():
            raise BadRequest(f"there is no folder {path.parent}")
        if path.exists() and not self._is_at(path):
            raise BadRequest("there is a file already", where=str(path), hint="give another name")
        return path

    def _is_at(self, path: Path) -> bool:
        """Whether this file holds the open plan."""
        plan = self._shown.plan
        return plan is not None and path.is_file() and path.read_text("utf-8", "replace") == plan.text

    # Looking at a plan

    def show_details(self) -> None:
        plan = self._shown.plan
        if plan is None or plan.error:
            self._screen.tell("no plan is open: N makes one, o opens a file", is_error=True)
            return
        target, words = self._screen.dashboard.session.target, plan.making_words
        lines = detail_lines(plan, self._screen.size.width - 12)
        command = command_text(words, target) if words and target is not None else ""
        if self._shown.run is not None:
            lines += [(), line(("said while it was carried out", Tone.QUIET))]
            lines += [line(text) for _, text in self._shown.run.said]
        self._screen.app.push_screen(TextDialog(plan.name.capitalize(), lines, copied=command, is_wide=True))

    def explain(self) -> None:
        item = self._screen.model.cursor_item
        if self._shown.plan is None or item is None:
            self._screen.tell("no plan is open, or it moves nothing", is_error=True)
            return
        lines = [line(text) for text in self._shown.plan.explained(item.name)]
        self._screen.show_text(f"Why {item.name} moves", lines)

    # What the keys for plans mean

    def offer_for(self, action_id: str, view: View, items: Sequence[Any]) -> Offer:
        if action_id in FROM_ROWS:
            return FROM_ROWS[action_id](self.folder, view, items)
        if action_id == "plan.history":
            return PlanHistory(self.folders)
        if action_id == "plan.throttle" and not self._shown.is_plan_under_way:
            # Another klamm carries it out, or nobody does any more: moves under way can be throttled anyway.
            return offer_for("reassignment.throttle", view, items)
        if self._shown.plan is None or self._shown.plan.error:
            return NotNow("no plan is open: N makes one, o opens a file")
        if action_id == "plan.cancel":
            tells = partial(self.note_cancelled, self._shown.plan)
            return CancelPlan(self._shown.plan, self.stop, tells, self._shown.is_plan_under_way)
        if action_id == "plan.throttle":
            return self._throttle_offer()
        if self._shown.plan.file is None:
            return NotNow("this file has Kafka's form, and the dashboard carries out klamm's plans only: N makes one")
        return CheckPlan(self._shown.plan) if action_id == "plan.check" else self._run_offer(_VERBS[action_id])

    def _throttle_offer(self) -> Offer:
        run = self._shown.run
        assert run is not None

        def build(values: Mapping[str, str]) -> ThrottlePlan:
            rate = quantity(parse_rate, "the throttle", values["rate"])
            if rate is None:
                raise BadRequest("give a throttle, such as 50M")
            return ThrottlePlan(run.run, ThrottleRange.of(rate), self.set_throttle)

        now = "" if run.run.throttle is None else typed_rate(run.run.throttle.start)
        return Ask("Change the throttle of the plan", (FieldNeeded("rate", "Bytes a second", now, "50M"),), build)

    def _run_offer(self, verb: Verb) -> Offer:
        """Return the form before the open plan is carried out, or why it cannot be."""
        plan = self._shown.plan
        assert plan is not None
        assert plan.file is not None
        if self._shown.is_plan_under_way:
            return NotNow("a plan is being carried out: Z stops it, C cancels it")
        if not plan.targets:
            return NotNow("there is nothing to do")
        if plan.path is None and verb is not Verb.APPLY:
            return NotNow("this plan was made just now: there is nothing to resume, A applies it")
        last = None if verb is Verb.APPLY else self.last_throttle()
        advice = plan.file.klamm.throttle if last is None else last
        fields = [
            FieldNeeded("throttle", "Throttle", typed_rate(advice), "50M a second; empty: full speed"),
            FieldNeeded("wave_replicas", "Replicas a wave", "10", "copied at once, into each broker and out of it"),
            FieldNeeded("wave_bytes", "Bytes a wave", "", "100G into or out of a broker; empty: no cap"),
            FieldNeeded("stall", "Stalled after", "5m", "it stops after this time without progress"),
        ]
        if plan.path is None:
            fields.insert(0, FieldNeeded("file", "Saved as", str(self.new_path()), "journal and rollback go beside it"))

        def build(values: Mapping[str, str]) -> CarryOutPlan:
            path = plan.path or self.checked_path(values["file"])
            return CarryOutPlan(plan, run_asked_for(verb, plan, path, values), self.save_as, self.begin)

        return Ask(f"{verb.value.capitalize()} {plan.name}", tuple(fields), build)

    # Carrying a plan out

    def begin(self, run: PlanRun, waves: Sequence[Wave]) -> None:
        """Carry out waves, and go on with everything else."""
        session = self._screen.dashboard.session
        assert session.target is not None
        if self._shown.is_plan_under_way:
            raise BadRequest("another run of a plan has begun meanwhile")
        self._control = WaveControl()
        self._shown.run = PlanRunState(run, len(waves), clock=lambda: round(time.time() * 1000), changed=self._changed)
        self._execution = asyncio.create_task(self._execute(self._shown.run, waves), name="plan-run")
        self._screen.dashboard.board.note_plan(None)
        self._screen.go_to(Location("plans"))

    async def _execute(self, state: PlanRunState, waves: Sequence[Wave]) -> None:
        session = self._screen.dashboard.session
        target = session.target
        assert target is not None
        try:
            async with session.connection(target) as cluster:
                state.ended(await state.run.carry_out(cluster, waves, state, control=self._control))
        except asyncio.CancelledError:
            state.stopped()
            raise
        except Exception as error:
            text = failure_text(error)
            log.warning("the run of a plan has failed: %s", text, exc_info=not isinstance(error, EXPECTED))
            state.failed(text)
        session.feed.refresh()
        if self._screen.is_running:
            leads, words = command_after(state)
            self._untold = OutcomeDialog(run_outcome(state), command_text(words, target), leads)
            self.tell_outcome()

    def tell_outcome(self) -> None:
        """Show how a run has ended, as soon as its window takes no keys from another window or from a field."""
        if self._untold is not None and self._screen.is_free:
            dialog, self._untold = self._untold, None
            self._screen.app.push_screen(dialog)

    def _changed(self) -> None:
        """Draw it. A failure here must not end the run, which calls this."""
        if not self._screen.is_running or self._screen.location.page != "plans":
            return
        try:
            self._screen.draw(is_new_data=False)
        except Exception:
            log.exception("the run of the plan could not be shown")

    def note_cancelled(self, plan: OpenedPlan, text: str) -> None:
        """Say, beside the run, what became of a plan's moves, if the run is of this plan."""
        if self._shown.run is not None and self._shown.run.run.digest == plan.digest:
            self._shown.run.says(text)

    def last_throttle(self) -> int | None:
        """Return the throttle of the open plan's last run. A journal that cannot be read is reported when a run
        begins."""
        if self._shown.plan is None or self._shown.plan.path is None:
            return None
        with suppress(AdminError, OSError):
            return throttle_of_last_run(beside(self._shown.plan.path, ".journal"), self._shown.plan.digest)
        return None

    def set_throttle(self, limits: ThrottleRange) -> None:
        self._control.set_throttle(limits)
        if self._shown.run is not None:
            # A later continuation keeps the rate that was chosen last.
            self._shown.run.run = replace(self._shown.run.run, throttle=limits)

    async def stop(self) -> None:
        """End the run, and remove what is left of its throttles; moves under way are left to the caller."""
        execution, self._execution = self._execution, None
        if execution is not None:
            execution.cancel()
            with suppress(asyncio.CancelledError):
                await execution

    def ask_to_stop(self) -> None:
        """Ask whether to end the run. This asks no cluster: a run has to end even if the cluster is out of reach."""

        def answered(is_meant: bool | None) -> None:
            if not is_meant:
                self._screen.tell("the run goes on")
            elif self._is_under_way():
                self._screen.run_in_background(self._stop_and_say(), name="stop", group="plan-stop", exclusive=True)

        if self._is_under_way():
            prepared = self.end_prepared("End the run of the plan?")
            self._screen.app.push_screen(ConfirmDialog(prepared, GO_ON), answered)

    def _is_under_way(self) -> bool:
        """Whether a run is under way; if not, say so."""
        if self._shown.is_plan_under_way:
            return True
        self._screen.tell("no plan is being carried out here", is_error=True)
        return False

    def end_prepared(self, question: str) -> Prepared:
        """Return what becomes of the run that is under way if it ends now."""
        run = self._shown.run
        assert run is not None
        lines = "moves under way go on in the cluster; the remaining waves do not begin"
        return Prepared(question, (lines, f"{run.run.path.name} will stop in {run.place}"), command=self.way_on)

    async def _stop_and_say(self) -> None:
        await self.stop()
        assert self._shown.run is not None
        self._shown.run.says("moves under way go on in the cluster")
        is_back = self._shown.run.run.verb is Verb.ROLLBACK
        keys = "B goes on rolling back, R applies the plan again" if is_back else "R resumes the plan, B rolls it back"
        self._screen.tell(f"stopped: moves under way go on in the cluster; {keys}")
        self._changed()

    @property
    def left_behind(self) -> str:
        """What the user has to know when the dashboard ends during a run; empty if none is under way."""
        run = self._shown.run
        if run is None or not run.is_under_way:
            return ""
        return f"{run.run.path.name} was stopped in {run.place}; {GO_ON}: {self.way_on}"

    @property
    def way_on(self) -> str:
        run, target = self._shown.run, self._screen.dashboard.session.target
        assert run is not None and target is not None
        return command_text(running_words(run.run, run.run.goes_on_with), target)


def command_after(state: PlanRunState) -> tuple[str, list[str]]:
    """Return the command of a run that is over, and what it is: what was done, or how to go on."""
    if state.state is RunState.DONE:
        return SAME, running_words(state.run)
    return GO_ON, running_words(state.run, state.run.goes_on_with)
