"""What a function of klamm's needs to run in a Python worker of Spark, which is not klamm's own process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from installed_klamm import Installed
from spark_sessions import WITH_ARCHIVE

pytestmark = pytest.mark.timeout(900)

JOB = """\
import json
import sys

import klamm._path
from engine.kafka.config.properties import parse_override
from pyspark.sql import SparkSession

def parse(text):
    import klamm._path
    from engine.kafka.config.properties import parse_override

    return parse_override(text)


def outcome(texts, function):
    try:
        return texts.map(function).collect()
    except Exception as error:
        return str(error).strip().splitlines()[-1]


def outcomes(environment):
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", sys.argv[1])
    for name, value in environment.items():
        builder = builder.config("spark.executorEnv." + name, value)
    with builder.getOrCreate() as spark:
        spark.sparkContext.setLogLevel("OFF")
        texts = spark.sparkContext.parallelize(["a=1", "b=2"], 2)
        # A worker is used again: what comes first must not have found klamm.
        return [outcome(texts, function) for function in (parse_override, parse)]


print(json.dumps([outcomes({}), outcomes({"PYTHONPATH": klamm._path.CODE})]))
"""


def test_functions_in_workers(installed: Installed, tmp_path: Path) -> None:
    """As klamm is installed, they find its code only once they ask for it; with the folder on the path at once."""
    (tmp_path / "job.py").write_text(JOB)
    python = str(installed.bin / "python")
    ran = installed.run("python", "job.py", WITH_ARCHIVE, folder=tmp_path, env={"PYSPARK_PYTHON": python})
    assert ran.code == 0, ran.err
    parsed = [["a", "1"], ["b", "2"]]
    missing = "ModuleNotFoundError: No module named 'engine'"
    assert json.loads(ran.out.splitlines()[-1]) == [[missing, parsed], [parsed, parsed]]
