"""A broker of ours that a test can order to die, as by kill -9, before its n-th next change of a file.

    python killable_broker.py ORDER [RULE …] server.properties

ORDER is a file in which a test writes the number. RULE names rules of ``turned_rules`` that this broker breaks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2])]

import turned_rules  # noqa: E402 - the code under test is found by the line above

_CHANGES = ("replace", "rename", "unlink", "mkdir", "rmdir", "truncate", "ftruncate", "fsync", "write", "writev")


class Order:
    """The order of a test: nothing, or to die after this many more changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left: int | None = None

    def count(self) -> None:
        """Die if it is time to."""
        if self._left is None:
            try:
                self._left = int(self._path.read_bytes() or b"0")
            except FileNotFoundError:
                return
        if not self._path.exists():
            # The test has withdrawn its order.
            self._left = None
            return
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _counted(real: Callable[..., Any], order: Order) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        order.count()
        return real(*arguments, **options)

    return call


def run(order: Path, *rest: str) -> int:
    """Run as a broker until it ends."""
    from engine.broker.server.process import main

    *rules, properties = rest
    for rule in rules:
        turned_rules.RULES[rule]()
    reply = Order(order)
    for name in _CHANGES:
        setattr(os, name, _counted(getattr(os, name), reply))
    sys.argv = ["engine.broker.server", properties]
    return main()


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), *sys.argv[2:]))
