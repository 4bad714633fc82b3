"""Makes one plan in a separate process, so that its caller can do other work at the same time, and can end it.

Reads one pickled ``Request`` from standard input. Writes pickled values to standard output, each after its length in
eight bytes: texts are progress, and the last value is a ``MadePlan`` or a ``PlanError``. Both ends are processes of one
klamm, so the pickles are its own.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass

from engine.common.snapshot_json import snapshot_from_json
from plans.errors import PlanError
from plans.options import PlanOptions, Strategy
from plans.planning import make_plan

LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Request:
    """What to plan. ``snapshot`` is the cluster as JSON."""

    snapshot: str
    strategy: Strategy
    options: PlanOptions


def main() -> None:
    """Answer the request."""
    request: Request = pickle.load(sys.stdin.buffer)
    # A library that prints must not mix its output with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def answer(value: object) -> None:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        answers.write(len(data).to_bytes(LENGTH_BYTES) + data)
        answers.flush()

    try:
        snapshot = snapshot_from_json(request.snapshot)
        answer(make_plan(snapshot, request.strategy, request.options, progress=answer))
    except PlanError as error:
        answer(error)


if __name__ == "__main__":
    main()
