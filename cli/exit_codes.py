"""What the exit codes of ``klamm`` mean. The only list of them; the reference page is generated from it."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The codes a script may rely on. ``meaning`` is one sentence for people."""

    DONE = 0
    BAD_ANSWER = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    UNDER_WAY = 5
    INTERNAL = 70
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.DONE: "done, and the answer is good",
    ExitCode.BAD_ANSWER: "done, and the answer is bad: unhealthy, replicas differ, something is missing here",
    ExitCode.USAGE: "wrong use: unknown option, bad file, bad value, a named topic or broker that does not exist",
    ExitCode.UNREACHABLE: "the cluster could not be reached, or did not answer in time",
    ExitCode.REFUSED: "the cluster refused: an error code of Kafka, named, with what to do next",
    ExitCode.UNDER_WAY: "accepted, or sent without an answer, and not known to be done: look before you repeat it",
    ExitCode.INTERNAL: "a bug in klamm; KLAMM_DEBUG=1 shows where",
    ExitCode.INTERRUPTED: "interrupted; the message says what was left running and how to go on",
    ExitCode.TERMINATED: "ended by TERM, in the same orderly way as by Ctrl-C",
}
