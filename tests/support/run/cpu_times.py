"""CPU seconds of this process and of all processes below it, which say what a test costs on a machine that is busy."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the seconds so far. On other systems than Linux, children count once they have ended."""
    if sys.platform != "linux":
        return sum(os.times()[:4])
    # The name may contain spaces. After it: state, parent, …, own user and system, those of children that ended.
    all_processes = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                all_processes[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    below: dict[int, list[int]] = {}
    for process, (parent, _) in all_processes.items():
        below.setdefault(parent, []).append(process)
    ticks, processes = 0, [os.getpid()]
    while processes:
        process = processes.pop()
        ticks += all_processes[process][1]
        processes += below.get(process, ())
    return ticks / _TICKS
