"""A Python as executors elsewhere have it: PySpark and what that needs, and nothing of klamm's."""

from __future__ import annotations

import venv
from importlib import util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def plain_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    for name in ("pyspark", "py4j", "pyarrow", "numpy"):
        spec = util.find_spec(name)
        assert spec is not None and spec.submodule_search_locations
        found = Path(next(iter(spec.submodule_search_locations)))
        (packages / name).symlink_to(found)
        for libraries in found.parent.glob(f"{name}.libs"):
            (packages / libraries.name).symlink_to(libraries)
    return folder / "bin" / "python"
