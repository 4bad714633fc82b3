"""A separate program: becomes the given command, tied to its parent or free of it. Imports nothing from klamm.

``launch.py tied PARENT_PID COMMAND…``  the kernel kills the command when the parent thread ends, however it ends
``launch.py free 0 COMMAND…``           the command is forked off and outlives its parent; its pid is printed

The child must set the death signal between fork and exec; doing it here keeps Python code out of the fork of a threaded
process.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _main() -> None:
    how, parent_pid, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if how == "free":
        child_pid = os.fork()
        if child_pid:
            print(child_pid, flush=True)
            os._exit(0)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    else:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
        # The parent may have died before the signal was set; then it would never come.
        if os.getppid() != parent_pid:
            os._exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _main()
