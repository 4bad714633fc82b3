"""Processes that run one of klamm's own modules: always that of the running code, never another with the same name.

``python -m engine.broker.server`` would take the first ``engine`` on the path: the current folder's, or a foreign
package's. So this file is also the program with which such a process starts:

``python -P own_process.py MODULE [ARGUMENT]…``  does what ``python -m`` does, with klamm's own code first on the path
"""

import sys
from pathlib import Path


def module_command(module: str) -> tuple[str, ...]:
    """Return the command that runs one of klamm's own modules; arguments may follow."""
    # -P: otherwise the folder of this file would be on the path, and every file in it a module.
    return (sys.executable, "-P", str(Path(__file__).absolute()), module)


def _run_module() -> None:
    import runpy

    sys.path.insert(0, str(Path(__file__).parents[2]))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run_module()
