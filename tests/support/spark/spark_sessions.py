"""One Spark session for all tests of a pytest process: it takes seconds to start. And a Python without klamm."""

from __future__ import annotations

import venv
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from class_archive import SPARK_HOME, short_lived_with_archive

from engine.local.java import find_java
from engine.spark.session import SparkOptions, spark_session
from klamm._worker_python import write_python_without_zips

__all__ = ["SPARK_HOME"]

WITH_ARCHIVE = short_lived_with_archive()
JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")

SETTINGS = (
    *((name, WITH_ARCHIVE) for name in JAVA_OPTIONS),
    ("spark.driver.bindAddress", "127.0.0.1"),
    ("spark.driver.host", "127.0.0.1"),
    ("spark.sql.shuffle.partitions", "2"),
    ("spark.ui.enabled", "false"),
    ("spark.sql.streaming.pollingDelay", "20ms"),
)

_RUNNING: list[Any] = []


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on ``local[2]`` that knows ``klamm-kafka``. Each folder that imports this has the same one."""
    from klamm.spark import register

    if _RUNNING:
        yield _RUNNING[0]
        return
    folder: Path = tmp_path_factory.mktemp("spark")
    (folder / "events").mkdir()
    folders = (
        ("spark.sql.warehouse.dir", str(folder / "warehouse")),
        ("spark.eventLog.enabled", "true"),
        ("spark.eventLog.dir", str(folder / "events")),
    )
    options = SparkOptions("local[2]", (*SETTINGS, *folders))
    with spark_session("tests", options, java_home=find_java(user="Spark").program.resolve().parents[1]) as session:
        register(session)
        _RUNNING.append(session)
        yield session
        _RUNNING.clear()


@pytest.fixture(scope="module")
def plain_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program. Spark gives up a worker that does not connect within ten seconds: so none compiles a zip."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    for name in ("pyspark", "py4j", "pyarrow", "numpy"):
        spec = util.find_spec(name)
        assert spec is not None and spec.submodule_search_locations
        package = Path(next(iter(spec.submodule_search_locations)))
        (packages / name).symlink_to(package)
        for libraries in package.parent.glob(f"{name}.libs"):
            (packages / libraries.name).symlink_to(libraries)
    python, pyspark = folder / "bin" / "python", packages / "pyspark" / "__init__.py"
    return Path(write_python_without_zips(folder / "without-zips", str(python), str(pyspark)) or python)
