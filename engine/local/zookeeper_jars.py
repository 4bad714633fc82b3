"""Finds ZooKeeper's jars: in a folder the user names, in the PySpark wheel, or fetched once through ``mvn``."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from engine.common.errors import OperationError

FOLDER_VARIABLE = "KLAMM_ZOOKEEPER_JARS"
"""Environment variable that names a folder with ZooKeeper's jars; it wins over every other place."""

_FETCH_TIMEOUT_S = 600
_log = logging.getLogger(__name__)


class _Artifact(NamedTuple):
    """One jar of Maven Central, and its required SHA-256."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"


_ZOOKEEPER_VERSION = "3.9.5"
_LOG4J = ("org.apache.logging.log4j", "2.25.4")
_NETTY = ("io.netty", "4.2.13.Final")

# The versions that PySpark 4.2 carries: users of the wheel and users of mvn run the same files.
_ARTIFACTS = tuple(
    _Artifact(group, name, version, sha256)
    for (group, version), jars in {
        ("org.apache.zookeeper", _ZOOKEEPER_VERSION): {
            "zookeeper": "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0",
            "zookeeper-jute": "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a",
        },
        ("org.apache.yetus", "0.12.0"): {
            "audience-annotations": "ffb101fc066360ff3c77457c927fd7967fb096a6ee9e046ab7071447d8208efc"
        },
        ("commons-io", "2.22.0"): {"commons-io": "2b9a7b1f726fb86216dbd2c8321eabe0221dbd5b1be81c18e1cb53811b104758"},
        _LOG4J: {
            "log4j-api": "c4b642a7f047275215de117e0e3847eb2c7711d84a0aa7433e7b3c096daf341d",
            "log4j-core": "10fee2c0485d54fa44ee75d314f6295508f7b932281873db61a91b88073200e6",
            "log4j-slf4j2-impl": "dd897abc5eb3a6d965426c7937b92dd43e67c82d9819bea5d19f311516c68be3",
        },
        ("org.slf4j", "2.0.17"): {"slf4j-api": "7b751d952061954d5abfed7181c1f645d336091b679891591d63329c622eb832"},
        ("io.dropwizard.metrics", "4.2.37"): {
            "metrics-core": "3c70d19049d10f474ab803706b9c0677bcf5fd9e1afeb4f6c496f62e38b27678"
        },
        _NETTY: {
            "netty-buffer": "39e9ab9ecaff178898a5eb37568096f1efd4f768a7bd162e0cde3eefa19137d5",
            "netty-codec-base": "a0407d1e9b77e9807aabf367e06602475faab567bfcb8e07ff5bd22c24cd923e",
            "netty-common": "cccffbdd68586b5473c67d6ac37145625e7abbfae304e7a512616576b0187697",
            "netty-handler": "50efc30aeca2ef21311f2502389e500bfc168c311edb1ae04a2db4d6bb5d7f7f",
            "netty-resolver": "2cd68d6a746aeb2ec92923fa168d250526d7ad3dbe1877e7bcbe6e8acdb2c193",
            "netty-transport": "d9b2200bfe6e47c2dfa2f0952df6fbdfd42bf58bdd9007e9ac17c789274388c5",
            # ZooKeeper's port for TLS needs it.
            "netty-transport-classes-epoll": "2ed9cf6ca8bee3ae80501938e5fa0b7c20947d704222a774a60ae65d38e0285e",
            "netty-transport-native-unix-common": "052b8429276ac96bd1f1067ce963b4e57c627ca331071f4df2e63f759234f6b1",
        },
        ("org.xerial.snappy", "1.1.10.8"): {
            "snappy-java": "50485d06037fea3d6e40c968386feeca6338cc9872e25549593ff3eb352cefcc"
        },
    }.items()
    for name, sha256 in jars.items()
)

_IN_PYSPARK = frozenset(artifact.name for artifact in _ARTIFACTS) | {"netty-codec"}
"""Names of the jars among PySpark's. Netty 4.1, which PySpark 4.0 has, has no netty-codec-base."""


def zookeeper_classpath(environ: Mapping[str, str] | None = None) -> str:
    """Return the class path of a ZooKeeper server. If the jars are not here yet, ``mvn`` fetches them: 7 MB, once.

    Raises:
        OperationError: as ``find_zookeeper_jars``; or mvn failed, or fetched a file with a wrong SHA-256.
    """
    jars = find_zookeeper_jars(environ) or _fetched_jars(os.environ if environ is None else environ)
    return os.pathsep.join(str(jar) for jar in jars)


def find_zookeeper_jars(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the jars of the first place that has them; none if ``mvn`` must fetch them first.

    The places: the folder that ``KLAMM_ZOOKEEPER_JARS`` names, the installed PySpark, the jars fetched earlier.

    Raises:
        OperationError: the named folder has none; or no place has them, and mvn is not installed either.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(FOLDER_VARIABLE)
    if named:
        return _jars_of_folder(Path(named))
    jars = _jars_of_pyspark() or sorted(_fetched_folder(environ).glob("*.jar"))
    if not jars and _mvn(environ) is None:
        raise OperationError(
            "ZooKeeper's jars are not here: PySpark, which carries them, is not installed, and neither is mvn",
            hint=f"run: pip install 'klamm[spark]', or: apt-get install maven, or set {FOLDER_VARIABLE} to a folder "
            "that has them",
        )
    return jars


def _jars_of_folder(folder: Path) -> list[Path]:
    jars = sorted(folder.glob("*.jar"))
    if not _has_zookeeper(jars):
        raise OperationError(
            f"{FOLDER_VARIABLE} names {folder}, which has no zookeeper-*.jar",
            hint="name the folder lib of an unpacked ZooKeeper 3.9, or unset the variable",
        )
    return jars


def _has_zookeeper(jars: list[Path]) -> bool:
    return any(re.fullmatch(r"zookeeper-\d.*\.jar", jar.name) for jar in jars)


def _jars_of_pyspark() -> list[Path]:
    """Return those of the PySpark wheel, which is located but never imported; none if it has no ZooKeeper."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return []
    jars = sorted((Path(next(iter(spec.submodule_search_locations))) / "jars").glob("*.jar"))
    chosen = [jar for jar in jars if re.sub(r"-\d[^-]*$", "", jar.stem) in _IN_PYSPARK]
    return chosen if _has_zookeeper(chosen) else []


def _fetched_folder(environ: Mapping[str, str]) -> Path:
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "klamm" / f"zookeeper-{_ZOOKEEPER_VERSION}"


def _mvn(environ: Mapping[str, str]) -> str | None:
    return shutil.which("mvn", path=environ.get("PATH", ""))


def _fetched_jars(environ: Mapping[str, str]) -> list[Path]:
    """Fetch the jars into the user's cache. If several processes need them, one fetches and the others wait."""
    folder = _fetched_folder(environ)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "zookeeper.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=folder.parent) as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _log.warning("fetching ZooKeeper %s through mvn into %s (once, 7 MB)", _ZOOKEEPER_VERSION, folder)
            _fetch(_mvn(environ) or "mvn", Path(work)).rename(folder)
    return sorted(folder.glob("*.jar"))


def _fetch(mvn: str, work: Path) -> Path:
    """Let ``mvn`` copy the jars into a folder below ``work``, check each, and return the folder."""
    (work / "pom.xml").write_text(_pom())
    command = [mvn, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={work / 'jars'}"]
    try:
        ran = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OperationError(f"mvn could not fetch ZooKeeper's jars: {error}", hint=_instead()) from error
    if ran.returncode != 0:
        reason = next((line for line in ran.stdout.splitlines() if "ERROR" in line), f"exit code {ran.returncode}")
        raise OperationError(f"mvn could not fetch ZooKeeper's jars: {reason}", hint=_instead())
    for artifact in _ARTIFACTS:
        _check(work / "jars" / artifact.file_name, artifact.sha256)
    return work / "jars"


def _check(jar: Path, sha256: str) -> None:
    if not jar.is_file():
        raise OperationError(f"mvn did not fetch {jar.name}", hint=_instead())
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    if digest != sha256:
        raise OperationError(
            f"{jar.name} is not the file it should be: its SHA-256 is {digest}, not {sha256}",
            hint=f"remove it from Maven's repository and try again; if it comes back, do not trust it; {_instead()}",
        )


def _instead() -> str:
    return f"or run: pip install 'klamm[spark]', or set {FOLDER_VARIABLE} to a folder with the jars"


def _pom() -> str:
    """Return a project that depends on exactly these jars, without their dependencies."""
    nothing_else = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{artifact.group}</groupId><artifactId>{artifact.name}</artifactId>"
        f"<version>{artifact.version}</version>{nothing_else}</dependency>"
        for artifact in _ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>klamm</groupId><artifactId>zookeeper-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
