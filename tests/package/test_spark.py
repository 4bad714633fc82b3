"""What a function of klamm's needs to run in a Python worker of Spark, which is not klamm's own process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from installed_klamm import Installed

pytestmark = pytest.mark.timeout(900)

JOB = """\
import json
import sys

import klamm._path
from engine.kafka.config.properties import parse_override
from pyspark.sql import SparkSession

is_on_the_path = sys.argv[1] == "on the path"
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
if is_on_the_path:
    builder = builder.config("spark.executorEnv.PYTHONPATH", klamm._path.CODE)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
texts = spark.sparkContext.parallelize(["a=1", "b=2"], 2)


def parse(text):
    import klamm._path
    from engine.kafka.config.properties import parse_override

    return parse_override(text)


def outcome(function):
    try:
        return texts.map(function).collect()
    except Exception as error:
        return str(error).strip().splitlines()[-1]


# A worker is used again: what comes first must not have found klamm.
print(json.dumps({"as it is": outcome(parse_override), "importing the path": outcome(parse)}))
spark.stop()
"""


@pytest.mark.parametrize("way", ["as installed", "on the path"])
def test_functions_in_workers(installed: Installed, tmp_path: Path, way: str) -> None:
    (tmp_path / "job.py").write_text(JOB)
    python = str(installed.bin / "python")
    ran = installed.run("python", "job.py", way, folder=tmp_path, env={"PYSPARK_PYTHON": python})
    assert ran.code == 0, ran.err
    result = json.loads(ran.out.splitlines()[-1])
    parsed = [["a", "1"], ["b", "2"]]
    assert result["importing the path"] == parsed
    missing = "ModuleNotFoundError: No module named 'engine'"
    assert result["as it is"] == (parsed if way == "on the path" else missing)
