"""A package repository in a folder, for ``--packages``: one package, and another that it depends on."""

from __future__ import annotations

import zipfile
from pathlib import Path

from spark_sessions import WITH_ARCHIVE

WANTED = "org.example:wanted:1"

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>{name}</artifactId><version>1</version>
  <dependencies>{needs}</dependencies>
</project>
"""
_NEEDED = "<dependency><groupId>org.example</groupId><artifactId>needed</artifactId><version>1</version></dependency>"
_IVY = """\
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers><ibiblio name="here" m2compatible="true" root="{repository}"/></resolvers>
</ivysettings>
"""


def package_settings(folder: Path) -> dict[str, str]:
    """Make the repository; return the settings of a Spark that finds packages only there.

    The jar of each package has a file named after it: ``wanted.txt``, ``needed.txt``.
    """
    repository = folder / "repository"
    for name, needs in (("wanted", _NEEDED), ("needed", "")):
        version = repository / "org" / "example" / name / "1"
        version.mkdir(parents=True)
        (version / f"{name}-1.pom").write_text(_POM.format(name=name, needs=needs))
        with zipfile.ZipFile(version / f"{name}-1.jar", "w") as jar:
            jar.writestr(f"{name}.txt", "is here")
    settings = folder / "ivysettings.xml"
    settings.write_text(_IVY.format(repository=repository.as_uri()))
    return {
        "spark.driver.extraJavaOptions": f"{WITH_ARCHIVE} -Duser.home={folder}",
        "spark.jars.ivy": str(folder / "ivy"),
        "spark.jars.ivySettings": str(settings),
    }
