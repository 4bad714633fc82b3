"""``python -m engine.broker.log.cleaner.worker``: cleans in a process of its own, off the broker's event loop.

It reads plans from standard input and writes reports to standard output, a line each. It ends with its broker: the
kernel kills it if possible, else it ends at the end of its input. The log stays intact whenever that happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import sys
import threading
import traceback
from dataclasses import replace
from queue import SimpleQueue
from typing import BinaryIO

from engine.broker.log.cleaner.cleaning import clean
from engine.broker.log.cleaner.messages import Failed, FailureKind, Report, decode_plan, encode_report
from engine.common.errors import KlammError

NICENESS = 10
_PR_SET_PDEATHSIG = 1
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Serve until the input ends."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    reports = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    plans: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read_plans, args=(sys.stdin.buffer, plans), name="plans", daemon=True).start()
    while True:
        _serve(plans.get(), reports)


def _serve(line: bytes, reports: BinaryIO) -> None:
    def report(report: Report) -> None:
        reports.write(encode_report(report))

    try:
        plan = decode_plan(line)
        # This is the folder itself, whatever its name becomes: another folder of that name may belong to a new topic.
        os.chdir(plan.folder)
        clean(replace(plan, folder="."), report)
    except OSError as error:
        kind = FailureKind.NO_SPACE if error.errno in _NO_SPACE else FailureKind.DISK
        report(Failed(kind, error.errno or 0, str(error)))
    except KlammError as error:
        report(Failed(FailureKind.FAULT, 0, str(error)))
    except Exception:
        report(Failed(FailureKind.FAULT, 0, traceback.format_exc()))
    finally:
        os.chdir("/")


def _read_plans(source: BinaryIO, plans: SimpleQueue[bytes]) -> None:
    for line in source:
        plans.put(line)
    os._exit(0)


def _die_with_parent() -> None:
    parent = os.getppid()
    # Where there is no prctl, the end of the input ends the process.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


if __name__ == "__main__":
    main()
