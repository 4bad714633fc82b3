"""Runs functions of the engine in Spark's Python workers, which are not klamm's own processes.

A worker would look up a pickled function as ``engine…``, without klamm's folder on its path. So a small function
travels by value, which puts that folder on the path first; executors elsewhere have it in the job's archive.
"""

from __future__ import annotations

import atexit
import pickle
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from engine.spark.archive import write_archive
from engine.spark.hadoop_jvm import shared_settings
from engine.spark.session import is_in_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

_SHIPPED = "klamm-spark.zip"


def run_in_workers(spark: SparkSession, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    """Call a function of a module with each task, one Spark task each; return the results in their order.

    Task and result are pickled; the function is found by its name.
    """
    if not tasks:
        return []
    context = spark.sparkContext
    ship_code(spark)
    call = _by_name(function.__module__, function.__name__, shared_settings(spark))
    payloads = [pickle.dumps(task) for task in tasks]
    results: list[bytes] = context.parallelize(payloads, len(payloads)).map(call).collect()
    return [pickle.loads(each) for each in results]


def ship_code(spark: SparkSession) -> None:
    """Give executors in other processes the archive, once for a session."""
    context: Any = spark.sparkContext
    if is_in_threads(context.master) or any(str(name).endswith(_SHIPPED) for name in context._python_includes):
        return
    # Executors that start later fetch the archive from here, so it stays until the program ends.
    folder = tempfile.mkdtemp(prefix="klamm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder) / _SHIPPED
    write_archive(archive)
    context.addPyFile(str(archive))


def _by_name(module: str, name: str, hadoop_settings: bytes | None) -> Callable[[bytes], bytes]:
    """Return a function that travels by value, because no module contains it."""

    def call(payload: bytes) -> bytes:
        import importlib
        import pickle

        try:
            code = importlib.import_module(module)
        except ModuleNotFoundError:
            importlib.import_module("klamm._path")
            code = importlib.import_module(module)
        if hadoop_settings is not None:
            importlib.import_module("engine.spark.hadoop_jvm").receive_settings(hadoop_settings)
        return pickle.dumps(getattr(code, name)(pickle.loads(payload)))

    return call
