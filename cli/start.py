"""Where the program ``klamm`` begins: it handles Ctrl-C and missing streams before it loads anything else."""

from __future__ import annotations

import sys

from cli.framework.early import guard_start, open_missing_streams, soften_encodings


def run() -> None:
    """Run the program with the arguments of the process, and end the process."""
    guard_start()
    open_missing_streams()
    soften_encodings()
    from cli.main import main

    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
