"""A program that Spark starts as the Python of its workers, so that they import PySpark as it is installed.

Spark puts a zip of PySpark first on their path. What comes out of a zip is compiled in every process, which takes
longer than everything else that a job begins with, and each task reads the zip's directory again.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

_SHEBANG_MAX = 120
_WITHOUT_ZIPS = """\
import os
import runpy
import sys
from importlib.machinery import PathFinder

if sys.argv[1] != "-m":
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
# As -m does; a script has its own folder there.
paths = sys.path if sys.flags.safe_path else [os.getcwd(), *sys.path[1:]]
kept = [path for path in paths if not os.path.basename(path).startswith(("pyspark.zip", "py4j-"))]
found = [getattr(PathFinder.find_spec(name, kept), "origin", None) for name in ("pyspark", "py4j")]
sys.path[:] = kept if found[0] == PYSPARK and found[1] else paths
del sys.argv[:2]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@cache
def python_without_zips() -> str | None:
    """Return the program, which this process deletes when it ends; None where this machine cannot have it."""
    import pyspark

    if " " in sys.executable or len(sys.executable) > _SHEBANG_MAX:
        return None
    folder = tempfile.mkdtemp(prefix="klamm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_python_without_zips(Path(folder) / "python", sys.executable, pyspark.__file__)


def write_python_without_zips(program: Path, python: str, pyspark: str) -> str | None:
    """Write the program, which runs this Python and imports PySpark from there; None if nothing may be run there."""
    program.write_text(f"#!{python}\nPYSPARK = {pyspark!r}\n{_WITHOUT_ZIPS}")
    program.chmod(0o700)
    # Not on a file system from which nothing may be run.
    return str(program) if os.access(program, os.X_OK) else None
