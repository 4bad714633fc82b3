"""The archive for Spark's executors: klamm's own code, for a Python that has no klamm.

Nothing in it is compiled. Besides the standard library it needs only pyarrow and numpy, as PySpark does there anyway.
It holds klamm's public package with the engine inside, so no name in it can collide with another package's.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import engine
from engine.common.errors import OperationError

_DOOR = ("__init__.py", "_path.py", "_worker_python.py", "spark.py")
_DATE = (2020, 1, 1, 0, 0, 0)
"""The same code gives the same archive."""


def write_archive(path: Path) -> int:
    """Write the archive, which appears only once it is complete; return how many files are in it.

    Raises:
        OperationError: there is a folder of this name, or no folder for it.
        OSError: it cannot be written.
    """
    if path.is_dir():
        raise OperationError(f"this is a folder: {path}", hint="name a file in it")
    if not path.parent.is_dir():
        raise OperationError(f"no such folder: {path.parent}", hint="create it first")
    code = Path(engine.__file__).parents[1]
    door = code / "klamm" if (code / "klamm").is_dir() else code.parent
    files = {f"klamm/{name}": door / name for name in _DOOR}
    files |= {f"klamm/_app/{file.relative_to(code)}": file for file in sorted((code / "engine").rglob("*.py"))}
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in files.items():
                archive.writestr(zipfile.ZipInfo(name, _DATE), file.read_bytes(), zipfile.ZIP_DEFLATED)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return len(files)
