"""The log cleaner: finds the filthiest log, has a process clean it, and puts the result in place.

Each of ``log.cleaner.threads`` has one task and one process. A process starts when there is something to clean, and
ends after a while with nothing to do. The event loop only measures, plans and renames. Source of all rules:
LogCleaner and LogCleanerManager of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from engine.broker.log.cleaner.choice import LogToClean, filthiest, may_be_cleaned, measure
from engine.broker.log.cleaner.cleaning import remove_leftovers
from engine.broker.log.cleaner.job import RATE_MAX, CleanerSettings, CleaningJob
from engine.broker.log.cleaner.messages import (
    CleaningPlan,
    Failed,
    FailureKind,
    Finished,
    GroupCleaned,
    Indexed,
    Report,
    decode_report,
    encode_plan,
)
from engine.broker.log.cleaner.stats import CleaningStats, log_text
from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager
from engine.broker.log.small_files import sync_path
from engine.common.errors import KafkaError, StorageError
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import DynamicConfigs
from engine.runtime.log_files import OF_LINES
from engine.runtime.offload import Offloader
from engine.runtime.own_process import module_command
from engine.runtime.supervisor import Supervisor
from engine.runtime.turns import Breather

T = TypeVar("T")

_LINE_BYTES_MAX = 16 * 1024 * 1024
_COMMAND = module_command("engine.broker.log.cleaner.worker")


class CleanerProcessEnded(Exception):
    """The process ended before it had finished; the text says how."""


class CleanerProcess:
    """At most one process, and one plan at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id, if there is a process."""
        return None if self._process is None else self._process.pid

    async def run(self, plan: CleaningPlan) -> AsyncGenerator[Report, None]:
        """Carry out a plan and yield each report; the last one is ``Finished`` or ``Failed``.

        A caller that stops before the last report must ``kill``.

        Raises:
            CleanerProcessEnded: it did not start, was killed, or crashed.
        """
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(encode_plan(plan))
            await process.stdin.drain()
            while line := await process.stdout.readline():
                report = decode_report(line)
                yield report
                if isinstance(report, Finished | Failed):
                    return
        except (OSError, ValueError) as error:
            await self.kill()
            raise CleanerProcessEnded(f"cannot talk to it: {error}") from error
        code = await _to_the_end(process.wait())
        await self.kill()
        raise CleanerProcessEnded(f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}")

    async def kill(self) -> None:
        """End the process, if there is one, and wait until it is gone: from then on it writes nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await _to_the_end(process.communicate())

    async def _started(self) -> Process:
        if self._process is None:
            # Its own session: a Ctrl-C in the terminal is for the broker, which ends this process itself.
            starting = asyncio.create_task(
                asyncio.create_subprocess_exec(
                    *_COMMAND, stdin=PIPE, stdout=PIPE, start_new_session=True, limit=_LINE_BYTES_MAX
                ),
                name="start the cleaner's process",
            )
            try:
                self._process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                with contextlib.suppress(OSError):
                    self._process = await starting  # for ``kill`` to find it
                raise
            except OSError as error:
                raise CleanerProcessEnded(f"cannot start it: {error}") from error
        return self._process


async def _to_the_end(awaitable: Coroutine[Any, Any, T]) -> T:
    """Wait for short work that must not stay half done, even if the waiter is cancelled."""
    work = asyncio.create_task(awaitable, name="end the cleaner's process")
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await work
        raise


logger = logging.getLogger("kafka.log.LogCleaner")

IDLE_MS_MAX = 60_000
"""A process that has had nothing to do for this long is stopped."""

CRASHES_MAX = 3
"""Maximum processes that may die over one log; then the cleaner leaves it alone."""


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    return CleanerSettings(
        enable=config.log_cleaner_enable,
        threads=config.log_cleaner_threads,
        dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        io_buffer_size=config.log_cleaner_io_buffer_size,
        io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
        io_max_bytes_per_second=min(config.log_cleaner_io_max_bytes_per_second, RATE_MAX),
        backoff_ms=config.log_cleaner_backoff_ms,
    )


class LogCleaner:
    """Cleans the compacted logs of a log manager until it is stopped."""

    def __init__(self, configs: DynamicConfigs, log_manager: LogManager, offloader: Offloader) -> None:
        self.settings = cleaner_settings(configs.current)
        self.last_stats: dict[int, CleaningStats] = {}
        """Statistics of each thread's last cleaning."""
        self.max_dirty_percent = 0
        self.max_compaction_delay_ms = 0
        self.bytes_total = 0
        """Bytes that cleanings have read and written."""
        self.last_run_s = time.monotonic()
        self.folders_in_use: set[str] = set()
        """Where processes write. The topic may be deleted then, and another one of its name may get the folder."""
        self._logs = log_manager
        self._offloader = offloader
        self._threads = Supervisor("log-cleaner")
        self._keeper = Supervisor("log-cleaner-settings")
        self._has_new_settings = asyncio.Event()
        self._configs = configs

    @property
    def since_last_run_ms(self) -> int:
        """Milliseconds since a thread last looked for a log to clean."""
        return int(1000 * (time.monotonic() - self.last_run_s))

    def start(self) -> None:
        """Start cleaning, unless ``log.cleaner.enable`` is false."""
        if not self.settings.enable:
            return
        self._configs.follow(lambda: cleaner_settings(self._configs.current), self._settings_changed)
        self._keeper.start(self._keep(), "keeper")
        self._start_threads()

    async def stop(self) -> None:
        """Stop all cleaning; interrupted work starts over another time."""
        if self.settings.enable:
            logger.info("Shutting down the log cleaner.")
        await self._keeper.stop()
        await self._threads.stop()

    def _start_threads(self) -> None:
        logger.info("Starting the log cleaner")
        for number in range(self.settings.threads):
            self._threads.start(_CleanerThread(self, self._logs, self._offloader, number).run(), str(number))

    def _settings_changed(self, settings: CleanerSettings) -> None:
        if settings != self.settings:
            self.settings = settings
            self._has_new_settings.set()

    async def _keep(self) -> None:
        """Restart with other settings, as Kafka does."""
        while True:
            await self._has_new_settings.wait()
            self._has_new_settings.clear()
            logger.info("Restarting the log cleaner with new settings %s", self.settings)
            await self._threads.stop()
            self._start_threads()


class _CleanerThread:
    """The counterpart of one thread in Kafka: cleans one log after another in its own process."""

    def __init__(self, cleaner: LogCleaner, logs: LogManager, offloader: Offloader, number: int) -> None:
        self._cleaner = cleaner
        self._settings = cleaner.settings
        self._logs = logs
        self._offloader = offloader
        self._number = number
        self._process = CleanerProcess()

    async def run(self) -> None:
        idle_since_ms = self._logs.clock.monotonic_ms()
        try:
            while True:
                try:
                    chosen = await self._look()
                    if chosen is not None and await self._clean(chosen):
                        idle_since_ms = self._logs.clock.monotonic_ms()
                        continue
                except Exception:
                    # A thread that ended would clean nothing until the broker's next start.
                    logger.exception("Cleaner %d failed unexpectedly; it continues", self._number)
                if self._logs.clock.monotonic_ms() - idle_since_ms >= IDLE_MS_MAX:
                    await self._process.kill()
                await asyncio.sleep(max(self._settings.backoff_ms, 1) / 1000)
        finally:
            await self._process.kill()

    # --- what to clean

    async def _look(self) -> LogToClean | None:
        """Return the filthiest log; also delete old segments of compacted logs, as Kafka's cleaner does."""
        candidates: list[LogToClean] = []
        breather = Breather()
        for log in list(self._logs.logs.values()):
            await breather.give_way()
            measured = self._measure(log)
            if measured is not None:
                candidates.append(measured)
        cleaner = self._cleaner
        cleaner.max_dirty_percent = int(100 * max((candidate.cleanable_ratio for candidate in candidates), default=0.0))
        cleaner.last_run_s = time.monotonic()
        cleaner.max_compaction_delay_ms = max((candidate.compaction_delay_ms for candidate in candidates), default=0)
        chosen = filthiest(candidates)
        if chosen is not None:
            await self._flush(chosen)
        # Other tasks have run in between.
        again = None if chosen is None else self._measure(chosen.log)
        return again if again is not None and again.is_due else None

    async def _flush(self, chosen: LogToClean) -> None:
        """Bring the segments to clean to the disk.

        When a cleaning drops a record, a power failure must not be able to lose its successor.
        """
        log, end_offset = chosen.log, chosen.first_uncleanable_offset
        if log.is_offline or log.recovery_point >= end_offset:
            return
        try:
            job = log.begin_flush(end_offset)
        except KafkaError as error:
            logger.warning("Cannot flush a log for cleaning partition=%s: %s", log.topic_partition, error)
            return
        except Exception as error:
            self._fault(log, error)
            return
        if job is not None:
            await self._offloader.run(job.run)
            job.finish()

    def _measure(self, log: Log) -> LogToClean | None:
        if not may_be_cleaned(log) or log.topic_partition in self._logs.future_logs:
            return None
        if str(log.dir) in self._cleaner.folders_in_use:
            return None
        try:
            log.delete_old_segments(self._logs.clock.now_ms())
            return measure(log, self._logs.clock.now_ms())
        except OSError as error:
            self._logs.fail_dir(log.log_dir, f"Error while measuring {log.topic_partition} for cleaning", error)
        except KafkaError as error:
            logger.warning("Cannot measure a log for cleaning partition=%s: %s", log.topic_partition, error)
        except StorageError as error:
            self._leave_alone(log, str(error))
        except Exception as error:
            self._fault(log, error)
        return None

    # --- cleaning

    async def _clean(self, chosen: LogToClean) -> bool:
        """Clean a log once; return whether it worked."""
        try:
            job = CleaningJob(chosen, self._settings, self._logs.future_logs, self._logs.clock.now_ms())
        except KafkaError as error:
            logger.warning("Cannot clean a log partition=%s: %s", chosen.log.topic_partition, error)
            return False
        except Exception as error:
            self._fault(chosen.log, error)
            return False
        finished: Finished | None = None
        self._cleaner.folders_in_use.add(job.plan.folder)
        try:
            finished = await self._carry_out(job)
            if finished is None:
                await self._clear_up(job)
        finally:
            self._cleaner.folders_in_use.discard(job.plan.folder)
            job.end(None if finished is None else finished.end_offset)
        if finished is None:
            return False
        self._logs.checkpoint_soon(job.log.log_dir)
        self._tell(job, finished)
        return True

    async def _carry_out(self, job: CleaningJob) -> Finished | None:
        plan = job.plan
        self._say("Beginning cleaning of log %s", job.log_name)
        self._say(
            "Building offset map for log %s in offset range [%d, %d).",
            job.log_name,
            plan.first_dirty_offset,
            plan.first_uncleanable_offset,
        )
        try:
            async with aclosing(self._process.run(plan)) as reports:
                async for report in reports:
                    if not job.is_valid:
                        self._say("Cancelled the cleaning of log %s: the log has changed meanwhile.", job.log_name)
                        return None
                    if isinstance(report, Indexed):
                        self._say("Offset map for log %s complete, with %d keys.", job.log_name, report.key_count)
                    elif isinstance(report, GroupCleaned):
                        job.swap(report)
                        await self._offloader.run(sync_path, job.log.dir)
                    elif isinstance(report, Failed):
                        self._failed(job, report)
                    elif isinstance(report, Finished):
                        return report
        except CleanerProcessEnded as error:
            self._crashed(job, str(error))
        except (KafkaError, StorageError) as error:
            logger.error("Cannot put a cleaned segment in place log=%s: %s", job.log_name, error)
        except OSError as error:
            self._logs.fail_dir(job.log.log_dir, f"Failed to clean up log for {job.log.topic_partition}", error)
        except Exception as error:
            self._fault(job.log, error)
        return None

    async def _clear_up(self, job: CleaningJob) -> None:
        """End the process, and remove its unfinished work.

        If the log's folder was renamed during the cleaning, the process may have written to a new folder of that name.
        """
        await self._process.kill()
        for folder in {job.log.dir, Path(job.plan.folder)}:
            try:
                await self._offloader.run(remove_leftovers, folder)
            except OSError as error:
                # Another cleaning, or the next start, will try again.
                logger.warning("Cannot remove what a cleaning has left dir=%s: %s", folder, error)

    def _failed(self, job: CleaningJob, report: Failed) -> None:
        log = job.log
        if report.kind is FailureKind.FAULT:
            self._leave_alone(log, report.message)
        elif report.kind is FailureKind.NO_SPACE:
            logger.warning(
                "Cannot clean log %s: there is no room for the cleaned segment. The next try is after "
                "log.cleaner.backoff.ms=%d: %s",
                job.log_name,
                self._settings.backoff_ms,
                report.message,
            )
        else:
            message = f"Failed to clean up log for {log.topic_partition} in dir {log.log_dir}"
            self._logs.fail_dir(log.log_dir, message, OSError(report.error_number, report.message))

    def _crashed(self, job: CleaningJob, how: str) -> None:
        state = job.log.cleaning
        state.crashes += 1
        logger.warning("The process that was cleaning log %s is gone; nothing is lost: %s", job.log_name, how)
        if state.crashes >= CRASHES_MAX:
            self._leave_alone(job.log, f"{state.crashes} processes have died over it")

    def _fault(self, log: Log, error: Exception) -> None:
        """Leave alone a log that triggers a fault of ours: the cleaning of all others must continue."""
        logger.error("The cleaning of a log failed unexpectedly partition=%s", log.topic_partition, exc_info=error)
        self._leave_alone(log, repr(error))

    def _leave_alone(self, log: Log, why: str) -> None:
        log.cleaning.is_uncleanable = True
        logger.warning(
            "Unexpected exception thrown when cleaning log %r. Marking its partition (%s) as uncleanable until the "
            "broker's next start: %s",
            log,
            log.topic_partition,
            why,
        )

    def _tell(self, job: CleaningJob, finished: Finished) -> None:
        stats, plan = finished.stats, job.plan
        self._cleaner.last_stats[self._number] = stats
        self._cleaner.bytes_total += stats.bytes_read + stats.bytes_written
        text = log_text(stats, self._number, job.log_name, plan.first_dirty_offset, finished.end_offset)
        logger.info("%s", text, extra=OF_LINES)
        if stats.invalid_messages_read:
            logger.warning("\tFound %d invalid messages during compaction.", stats.invalid_messages_read)

    def _say(self, message: str, *arguments: object) -> None:
        logger.info("Cleaner %d: " + message, self._number, *arguments)
