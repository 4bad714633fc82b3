"""Puts the folder of klamm's own code first on this process's path: ``cli``, ``tui``, ``engine``, ``plans`` are ours then.

In a wheel that is ``klamm/_app``, in a checkout the folder of ``klamm``. Where a process has somebody's ``engine`` loaded
already it comes too late: only processes of klamm's own import it.
"""

import sys
from pathlib import Path

_PACKAGE = Path(__file__).parent
_APP = _PACKAGE / "_app"

sys.path.insert(0, str(_APP if _APP.is_dir() else _PACKAGE.parent))
