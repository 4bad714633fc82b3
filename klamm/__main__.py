"""The program: ``klamm``, and ``python -m klamm``."""

import klamm._path  # noqa: F401  (the next import is found by it)
from cli.start import run

if __name__ == "__main__":
    run()
