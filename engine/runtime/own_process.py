"""Processes that run a module of klamm's own: the one that belongs to the running code, never one of the same name.

``python -m engine.server`` would take the first ``engine`` on the path: that of the current folder, or a foreign
package's. So this file is also the program that such a process begins with:

``python -P own_process.py MODULE [ARGUMENT]…``  does what ``python -m`` does, with klamm's own code first on the path
"""

import sys
from pathlib import Path


def module_command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module of klamm's own; arguments may follow."""
    # -P: else the folder of this file would be on the path, with a module for every name in it.
    return (sys.executable, "-P", str(Path(__file__).absolute()), module)


def _run_module() -> None:
    import runpy

    sys.path.insert(0, str(Path(__file__).parents[2]))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run_module()
