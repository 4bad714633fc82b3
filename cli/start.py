"""Where the program ``klamm`` begins: Ctrl-C is taken care of before anything else is loaded."""

from __future__ import annotations

import sys

from cli.framework.early import guard_start


def run() -> None:
    """Run the program with the arguments of the process, and end the process."""
    guard_start()
    from cli.main import main

    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
