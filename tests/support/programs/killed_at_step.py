"""Runs ``klamm`` with the given words, and kills it with -9 after the n-th step of a plan.

    python killed_at_step.py N STEPS_FILE plan apply plan.json …

Each step's name is appended to STEPS_FILE before the kill. N = 0 kills nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from cli.main import main
from cli.views.plan_execution import ExecutionView
from engine.admin.reassignment.wave_progress import Step


def run(kill_after: int, steps: Path, words: list[str]) -> int:
    told = ExecutionView.step
    count = 0

    def step(self: ExecutionView, one: Step, wave: int) -> None:
        nonlocal count
        count += 1
        told(self, one, wave)
        with steps.open("a", encoding="utf-8") as file:
            file.write(f"{one.value} {wave}\n")
        if count == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    ExecutionView.step = step  # type: ignore[method-assign]
    return main(words)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
