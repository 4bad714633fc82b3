"""``engine.broker.server`` as a foreground process: its output and its exit code."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from broker_logs import server_log
from patience import within

from engine.kafka.config.properties import format_properties
from engine.runtime.own_process import module_command

OLD_RECORDS_STAY = {"log.initial.task.delay.ms": "3600000"}
"""Setting for brokers whose tests send records of long ago: half a minute after its start, a broker deletes those."""


class BrokerProgram:
    """One run of the broker with its own properties file. It is killed at the end if it still runs."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str], *options: str, open_files_max: int | None = None
    ) -> None:
        """``open_files_max`` sets ``ulimit -n``, for good."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._begin = time.monotonic()
        self._stderr = (folder / "stderr.txt").open("wb+")
        properties = folder / "server.properties"
        properties.write_text(format_properties(settings))
        limited = [] if open_files_max is None else ["sh", "-c", f'ulimit -n {open_files_max} && exec "$@"', "sh"]
        self.process = subprocess.Popen(
            [*limited, *module_command("engine.broker.server"), str(properties), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env={**os.environ, "LOG_DIR": str(folder / "logs")},
            start_new_session=True,
        )

    def __enter__(self) -> BrokerProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._stderr.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begin

    @property
    def stderr(self) -> str:
        """Everything it has printed to stderr."""
        return (self.folder / "stderr.txt").read_text()

    @property
    def server_log(self) -> str:
        """The content of its server.log."""
        return server_log(self.folder / "logs")

    def wait_until_started(self, timeout_s: float = 60.0) -> None:
        """Wait until it says that it serves."""
        self.wait_until_it_says("started broker ", timeout_s=timeout_s)

    def wait_until_it_says(self, words: str, *, timeout_s: float = 60.0) -> None:
        """Wait for a text on stderr or in server.log."""
        is_in_time = within(timeout_s)
        while words not in self.stderr and words not in self.server_log:
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.stderr}"
            assert is_in_time(), f"no {words!r} in time: {self.stderr}{self.server_log}"
            time.sleep(0.02)

    def terminate(self, timeout_s: float = 60.0) -> int:
        """Send TERM; return the exit code."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def refusal(self, timeout_s: float = 60.0) -> tuple[int, list[str]]:
        """Wait until a broker that cannot start has ended; return its exit code and the lines it printed."""
        code = self.process.wait(timeout_s)
        assert "Traceback" not in self.stderr
        return code, self.stderr.splitlines()


def settings(folder: Path, host: str, zookeeper_connect: str, **more: str) -> dict[str, str]:
    """Return the fewest settings that a broker needs; ``more`` has underscores for dots."""
    return {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://{host}:9092",
        "log.dirs": str(folder / "data"),
        "zookeeper.connect": zookeeper_connect,
        "zookeeper.session.timeout.ms": "2000",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
