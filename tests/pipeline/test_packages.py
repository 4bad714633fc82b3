"""``--packages``: what Spark fetches by its coordinates is there for the job, with what it needs itself."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from klamm_program import environment, klamm
from spark_sessions import SETTINGS, SHORT_LIVED

from engine.local.java import find_java

pytestmark = pytest.mark.timeout(900)

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>{name}</artifactId><version>1</version>
  <dependencies>{needs}</dependencies>
</project>
"""
NEEDED = "<dependency><groupId>org.example</groupId><artifactId>needed</artifactId><version>1</version></dependency>"
SETTINGS_OF_IVY = """\
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers><ibiblio name="here" m2compatible="true" root="{repository}"/></resolvers>
</ivysettings>
"""
JOB = """\
import sys
from pathlib import Path
from engine.pipeline.session import SparkOptions, spark_session

java_home, packages, *words = sys.argv[1:]
confs = tuple(tuple(word.split("=", 1)) for word in words)
with spark_session("packages", SparkOptions("local[1]", confs, (packages,)), java_home=Path(java_home)) as spark:
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()
    for name in ("wanted", "needed"):
        stream = loader.getResourceAsStream(f"{name}.txt")
        print(name, spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
"""


@pytest.fixture
def confs(tmp_path: Path) -> list[str]:
    """The settings of a Spark that finds packages in a repository of this test's, and nowhere else."""
    repository = tmp_path / "repository"
    for name, needs in (("wanted", NEEDED), ("needed", "")):
        folder = repository / "org" / "example" / name / "1"
        folder.mkdir(parents=True)
        (folder / f"{name}-1.pom").write_text(POM.format(name=name, needs=needs))
        with zipfile.ZipFile(folder / f"{name}-1.jar", "w") as jar:
            jar.writestr(f"{name}.txt", "is here")
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS_OF_IVY.format(repository=repository.as_uri()))
    options = dict(SETTINGS) | {
        "spark.driver.extraJavaOptions": f"{SHORT_LIVED} -Duser.home={tmp_path}",
        "spark.jars.ivy": str(tmp_path / "ivy"),
        "spark.jars.ivySettings": str(settings),
    }
    return [f"{name}={value}" for name, value in options.items()]


def test_a_package_and_what_it_needs_are_there(confs: list[str], tmp_path: Path) -> None:
    java_home = find_java(user="Spark").program.resolve().parents[1]
    command = [sys.executable, "-c", JOB, java_home, "org.example:wanted:1", *confs]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment(tmp_path), check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["wanted is here", "needed is here"]


def test_a_package_that_is_nowhere_is_named(confs: list[str], tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text("[2026-11-21 06:00:00,000] INFO [Broker id=1] x (logger)\n")
    words = [word for conf in confs for word in ("--conf", conf)]
    merge = ("spark", "merge", "state-change.log", "--out", "out", "--master", "local[1]", *words)
    ran = klamm(*merge, "--packages", "org.example:absent:1", "-o", "json", folder=tmp_path)
    assert ran.code == 2, ran.err
    assert ran.error["message"] == "Spark did not start: [unresolved dependency: org.example#absent;1: not found]"
    assert not (tmp_path / "out").exists()
