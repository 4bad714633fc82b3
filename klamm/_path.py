"""Puts the folder of klamm's own code first on this process's path: ``cli``, ``engine``, ``plans``, ``tui`` are ours.

In a wheel that is ``klamm/_app``, and so it is in the archive that executors of Spark get, where it is no folder of the
file system; in a checkout it is the folder beside ``klamm``. Only processes of klamm's own import this:
elsewhere these names may mean somebody else's packages.
"""

import sys
from pathlib import Path

_PACKAGE = Path(__file__).parent
_APP = _PACKAGE / "_app"

CODE = str(_APP if _APP.is_dir() or not _PACKAGE.is_dir() else _PACKAGE.parent)
"""The folder."""

sys.path.insert(0, CODE)
