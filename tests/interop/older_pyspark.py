"""Older releases of PySpark, and the connector of one: fetched once into the user's cache folder.

A release is a folder for PYTHONPATH. Everything else that it needs comes from the tests' environment.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from apache_kafka import fetched_once, jars_folder, run_maven

RELEASES = {"3.5.1": "0.10.9.7", "4.0.0": "0.10.9.9"}
"""Each with its release of Py4J."""

_CONNECTOR = "spark-sql-kafka-0-10_2.13"
_CONNECTOR_NEEDS = ("commons-pool2", "kafka-clients", "spark-sql-kafka", "spark-token-provider-kafka")
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klamm</groupId><artifactId>connector</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>{_CONNECTOR}</artifactId><version>VERSION</version>
    </dependency>
  </dependencies>
</project>
"""


def pyspark_folder(version: str) -> Path:
    """Return the folder of this PySpark release."""

    def fetch(work: Path) -> Path:
        # Most of its files are never imported, and a wheel that is unpacked at once need not be compressed.
        cheap = ("--no-compile", "--config-settings=--build-option=--compression=stored")
        program = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *cheap]
        wanted = (f"pyspark=={version}", f"py4j=={RELEASES[version]}")
        subprocess.run([*program, "--target", str(work / "packages"), *wanted], check=True, timeout=900)
        return work / "packages"

    return fetched_once(jars_folder().with_name(f"pyspark-{version}"), fetch)


def connector_jars(version: str) -> list[Path]:
    """Return the jars of Spark's own Kafka connector that Spark does not include."""

    def fetch(work: Path) -> Path:
        (work / "pom.xml").write_text(_POM.replace("VERSION", version))
        run_maven("dependency:copy-dependencies", f"-DoutputDirectory={work / 'libs'}", folder=work)
        return work / "libs"

    folder = fetched_once(jars_folder().with_name(f"spark-connector-{version}"), fetch)
    return sorted(path for path in folder.iterdir() if path.name.startswith(_CONNECTOR_NEEDS))
