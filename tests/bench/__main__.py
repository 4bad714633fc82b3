"""``python -m tests.bench [NAME…]``: runs the named benchmarks (all by default) and prints what they measured.

Each ``bench_<name>.py`` beside this file has a ``main()`` that prints a table; its figures are ratios against a named
peer in the same run. docs/benchmarks.md records the figures with machine, date and command.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tests.support.paths import FOLDERS

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    """Run the benchmarks; return the exit code."""
    known = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"error: no such benchmark: {', '.join(unknown)}\nhint: there are {', '.join(known)}", file=sys.stderr)
        return 2
    sys.path[:0] = [str(HERE), *FOLDERS]
    for name in names or known:
        print(f"== {name}", flush=True)
        importlib.import_module(f"bench_{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
