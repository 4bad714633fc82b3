"""Puts the folder of klamm's own code first on this process's path: ``cli``, ``engine``, ``plans``, ``tui`` are ours.

In a wheel that is ``klamm/_app``. It is the same in the archive that Spark's executors get, where it is not a folder of
the file system. In a checkout it is the folder beside ``klamm``. Only klamm's own processes import this: elsewhere
these names may mean other packages.
"""

import sys
from pathlib import Path

_PACKAGE = Path(__file__).parent
_APP = _PACKAGE / "_app"

CODE = str(_APP if _APP.is_dir() or not _PACKAGE.is_dir() else _PACKAGE.parent)
"""The folder."""

sys.path.insert(0, CODE)
