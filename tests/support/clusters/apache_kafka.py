"""Genuine Apache Kafka 3.9.1 brokers for the interop tests: their jars come through mvn, and they run on our ZooKeeper.

Clusters of Kafka 4 without ZooKeeper are in `kraft_cluster.py`.

The jars are fetched once into the user's cache folder; this repository contains nothing of Kafka.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from threading import Lock
from types import TracebackType

from wire_client import ConnectionClosed, WireClient

from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.local.java import find_java
from engine.local.probe import known_broker_ids
from engine.local.processes import LocalProcess, start_process

KAFKA_VERSION = "3.9.1"
START_TIMEOUT_S = 120.0
"""A loaded machine with two cores has needed 25 s."""

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>klamm</groupId><artifactId>kafka-jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>{slf4j_group}</groupId><artifactId>{slf4j_artifact}</artifactId><version>{slf4j_version}</version>
    </dependency>
  </dependencies>
</project>
"""

_LOG4J_1 = ("org.slf4j", "slf4j-reload4j", "1.7.36")
_LOG4J_2 = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.3")
"""Kafka logs through log4j 2 from 4.0 on."""

_LOG4J = """\
log4j.rootLogger=INFO, server
log4j.appender.server=org.apache.log4j.FileAppender
log4j.appender.server.File={folder}/server.log
log4j.appender.server.layout=org.apache.log4j.PatternLayout
log4j.appender.server.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.controller=TRACE, controller
log4j.additivity.kafka.controller=false
log4j.appender.controller=org.apache.log4j.FileAppender
log4j.appender.controller.File={folder}/controller.log
log4j.appender.controller.layout=org.apache.log4j.PatternLayout
log4j.appender.controller.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.state.change.logger={state_change_level}, stateChange
log4j.additivity.state.change.logger=false
log4j.appender.stateChange=org.apache.log4j.FileAppender
log4j.appender.stateChange.File={folder}/state-change.log
log4j.appender.stateChange.layout=org.apache.log4j.PatternLayout
log4j.appender.stateChange.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
LOG4J_2 = """\
rootLogger.level = INFO
rootLogger.appenderRefs = out
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
"""
_LOG4J_SHARED = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def jars_folder(version: str = KAFKA_VERSION) -> Path:
    """Return the folder that holds the jars of a Kafka release."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "klamm" / f"kafka-{version}"


def missing_for_kafka() -> str | None:
    """Return what this machine lacks for Apache Kafka. Without it the benchmarks leave Kafka out."""
    return None if shutil.which("mvn") else "mvn is not installed"


def fetch_jars(version: str = KAFKA_VERSION) -> Path:
    """Fetch the jars unless they are here; return their folder."""
    return fetched_once(jars_folder(version), lambda work: _fetch(version, work))


def fetched_once(folder: Path, fetch: Callable[[Path], Path]) -> Path:
    """Let ``fetch`` make the folder, or a file, inside another, unless it exists. One process does, the others wait."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "fetching.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=folder.parent) as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            fetch(Path(work)).rename(folder)
    return folder


def fetch_jar(artifact: str) -> Path:
    """Fetch one jar without what it needs, once: ``group:name:version``. Return its path."""
    name = artifact.split(":")[1]

    def fetch(work: Path) -> Path:
        folder = work / name
        run_maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
        return folder

    (jar,) = fetched_once(jars_folder().with_name(name), fetch).glob("*.jar")
    return jar


def _fetch(version: str, work: Path) -> Path:
    """Let mvn copy the jars into a folder inside this one, and return it."""
    group, artifact, slf4j_version = _LOG4J_1 if version.startswith("3.") else _LOG4J_2
    slf4j = {"slf4j_group": group, "slf4j_artifact": artifact, "slf4j_version": slf4j_version}
    (work / "pom.xml").write_text(_POM.format(version=version, **slf4j))
    run_maven("dependency:copy-dependencies", f"-DoutputDirectory={work / 'libs'}", folder=work)
    return work / "libs"


def run_maven(goal: str, *settings: str, folder: Path | None = None) -> None:
    """Run mvn, in a folder that has a ``pom.xml`` if the goal wants one."""
    retries = "-Daether.connector.http.retryHandler.count=5"
    java = os.environ.get("MAVEN_OPTS") or " ".join(SHORT_LIVED)
    environment = os.environ | {"MAVEN_OPTS": java}
    subprocess.run(["mvn", "-q", "-B", retries, goal, *settings], cwd=folder, env=environment, check=True, timeout=600)


SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a JVM that computes for some seconds: compiling well would cost more than it saves."""


def class_archive(version: str) -> Path:
    """Return where the archive of the classes that a broker of a release loads is, or will be.

    ``make interop`` makes it (`prepare.py` of `tests/interop`). JVMs that map it start with half the CPU.
    """
    program = find_java().program.resolve()
    words = f"{program} {program.stat().st_mtime_ns} {jars_folder(version)}"
    return jars_folder(version).parent / f"kafka-{version}-{hashlib.sha256(words.encode()).hexdigest()[:16]}.jsa"


def short_lived_java(
    *options: str | Path, version: str = KAFKA_VERSION, more_classes: Iterable[Path] = ()
) -> list[str | Path]:
    """Return the command, up to the main class, of a JVM that computes for some seconds with a release's classes."""
    archive = class_archive(version)
    mapped = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    classes = ":".join([f"{fetch_jars(version)}/*", *map(str, more_classes)])
    return [find_java().program, *SHORT_LIVED, *mapped, *options, "-cp", classes]


SOURCES = Path(__file__).parents[2] / "recording" / "java"
_OFTEN = ("Brokers", "MBeans", "Tools")
"""Sources that are compiled together."""


def compiled(source: str, *more_classes: Path) -> Path:
    """Return the folder with the classes of one of our sources. It is compiled once: that takes a JVM 3 s of CPU.

    Raises:
        SystemExit: this Java has no compiler.
    """
    java = find_java(user="the tests' Java programs")
    if not java.has_module("jdk.compiler"):
        raise SystemExit(f"error: {java.program} has no compiler\nhint: install a JDK and set JAVA_HOME")
    names = _OFTEN if source in _OFTEN else (source,)
    files = [SOURCES / f"{name}.java" for name in names]
    # The compiler itself knows no wildcard.
    classes = ":".join(map(str, [*sorted(fetch_jars().glob("*.jar")), *more_classes]))

    def compile_it(work: Path) -> Path:
        compiler = [java.program, *SHORT_LIVED, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        subprocess.run([*compiler, "-cp", classes, "-d", work / "classes", *files], check=True, timeout=300)
        return work / "classes"

    words = f"{java.program.resolve()} {classes}".encode()
    digest = hashlib.sha256(words + b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    return fetched_once(jars_folder().with_name(f"{names[0]}-{digest}"), compile_it)


class SharedJvm:
    """A JVM of a release that runs several brokers: it loads and compiles their code once.

    They end with it, and it ends with this process, or as a context manager. A broker has a JVM of its own if a test
    kills it alone, reads its JMX, or reads its log while others run.
    """

    def __init__(self, version: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="klamm-kafka-")
        log4j, self.output = Path(self._folder.name, "log4j.properties"), Path(self._folder.name, "out")
        log4j.write_text(_LOG4J_SHARED if version.startswith("3.") else LOG4J_2)
        name = "log4j.configuration" if version.startswith("3.") else "log4j2.configurationFile"
        options = ("-Xmx1g", f"-D{name}=file:{log4j}")
        java = short_lived_java(*options, version=version, more_classes=[compiled("Brokers")])
        with self.output.open("wb") as output:
            self._process = subprocess.Popen([*java, "Brokers"], stdin=subprocess.PIPE, stdout=output, stderr=output)
        self._one_line = Lock()

    def __enter__(self) -> SharedJvm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._folder.cleanup()

    def kill(self) -> None:
        """Kill all brokers with KILL."""
        self._process.kill()
        self._process.wait()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def do(self, what: str, properties: Path, *more: str) -> None:
        """Let the broker of these properties ``startup`` or ``shutdown``, and wait until it has.

        ``format`` formats its log dirs; the cluster's id is given, too.

        Raises:
            RuntimeError: it failed, with Java's words.
        """
        answer = properties.with_name(f"{what}-{time.monotonic_ns()}")
        assert self._process.stdin is not None
        with self._one_line:
            self._process.stdin.write("\t".join((what, f"{properties}", f"{answer}", *more)).encode() + b"\n")
            self._process.stdin.flush()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answer.exists():
            if not self.is_alive or time.monotonic() > deadline:
                self._process.kill()
                said = self.output.read_text("utf-8", "replace")[-4000:]
                raise RuntimeError(f"Apache Kafka did not {what}: {said}")
            time.sleep(0.02)
        if failure := answer.read_text():
            raise RuntimeError(f"Apache Kafka did not {what}: {failure}")


_starting = Lock()
_shared: dict[str, SharedJvm] = {}
"""By release, the JVM of this process."""


def shared_jvm(version: str) -> SharedJvm:
    """Return the JVM of this process for brokers of a release."""
    with _starting:
        if version not in _shared or not _shared[version].is_alive:
            _shared[version] = SharedJvm(version)
        return _shared[version]


def run_tool(
    main_class: str, *arguments: str, timeout_s: float = 120.0, version: str = KAFKA_VERSION
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's own command-line tools in a JVM of its own and return its output."""
    return subprocess.run(
        [*short_lived_java("-Xmx256m", version=version), main_class, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def jmx_options(host: str, port: int, secured: Mapping[str, str] | None = None) -> list[str]:
    """Return what lets a JVM answer JMX, as Kafka's own scripts do for ``JMX_PORT``."""
    plain = {"rmi.port": port, "authenticate": "false", "ssl": "false"}
    settings = {"port": port, "host": host, **(plain if secured is None else secured)}
    return [
        f"-Djava.rmi.server.hostname={host}",
        *(f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in settings.items()),
    ]


class ApacheKafkaBroker:
    """One genuine broker. Use it as a context manager, and stop it before its ZooKeeper."""

    is_short_lived = False
    """Whether brokers start as fast as they can. Benchmarks compare with brokers that run as fast as they can."""

    java_options: Sequence[str] = ()
    """Of brokers in a JVM of their own."""

    def __init__(
        self,
        folder: Path,
        *,
        broker_id: int,
        host: str,
        port: int,
        zookeeper_connect: str,
        overrides: Mapping[str, str] | None = None,
        heap: str = "1g",
        state_change_level: str = "INFO",
        jmx_port: int | None = None,
        jmx_secured: Mapping[str, str] | None = None,
        agent: str | None = None,
        shares_jvm: bool | SharedJvm = False,
    ) -> None:
        """``jmx_secured`` are Java's ``com.sun.management.jmxremote.*``, ``agent`` is a Java agent with its options.

        With ``shares_jvm``, other brokers that are short-lived run in the same JVM: in that of this process, unless
        another is given.
        """
        self.folder = folder
        self.broker_id = broker_id
        self.host = host
        self.port = port
        self.bootstrap = f"{host}:{port}"
        self._heap = heap
        self._jmx = [] if jmx_port is None else jmx_options(host, jmx_port, jmx_secured)
        if agent is not None:
            self._jmx.append(f"-javaagent:{agent}")
        self.shares_jvm = shares_jvm
        """Counts from the next start on."""
        self._log4j = _LOG4J.format(folder=folder, state_change_level=state_change_level)
        self._process: LocalProcess | None = None
        self._jvm: SharedJvm | None = None
        self._log: tuple[Path, int] = (folder / "server.log", 0)
        self._settings = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{host}:{port}",
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": zookeeper_connect,
            "zookeeper.session.timeout.ms": "6000",
            "offsets.topic.num.partitions": "5",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # When a setting of the cleaner changes, Kafka allocates its 128 MB again before the first are free. With a
            # heap this small, the thread that listens for settings runs out of memory, and the broker misses all later
            # changes.
            "log.cleaner.dedupe.buffer.size": "16777216",
            **(overrides or {}),
        }

    @property
    def process(self) -> LocalProcess:
        assert self._process is not None, "the broker was not started, or shares a JVM"
        return self._process

    def start(self, *, is_told: bool = True) -> None:
        """Start the broker and wait until it says so and tells clients of itself and of the controller.

        Without ``is_told`` it may serve before any controller has told it of the cluster.
        """
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        if self.shares_jvm and self.is_short_lived:
            jvm = self.shares_jvm if isinstance(self.shares_jvm, SharedJvm) else shared_jvm(KAFKA_VERSION)
            self._log = (jvm.output, jvm.output.stat().st_size)
            jvm.do("startup", self._properties)
            self._jvm = jvm
            self._wait(lambda: not is_told or self._tells_clients_of_itself())
            return
        log, log4j = self.folder / "server.log", self.folder / "log4j.properties"
        log4j.write_text(self._log4j)
        self._log = (log, log.stat().st_size if log.exists() else 0)
        options = (
            f"-Xmx{self._heap}",
            f"-Xms{self._heap}",
            f"-Dlog4j.configuration=file:{log4j}",
            *self._jmx,
            *self.java_options,
        )
        java = (
            short_lived_java(*options)
            if self.is_short_lived
            else [find_java().program, *options, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-cp", f"{fetch_jars()}/*"]
        )
        self._process = start_process([*java, "kafka.Kafka", self._properties], output=self.folder / "broker.out")
        self._wait(lambda: self._says_started() and (not is_told or self._tells_clients_of_itself()))

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _wait(self, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_there():
            is_alive = self.process.is_alive if self._jvm is None else self._jvm.is_alive
            if not is_alive or time.monotonic() > deadline:
                output = self.folder / "broker.out"
                said = output.read_text("utf-8", "replace")[-2000:] if output.exists() else ""
                self.stop()
                raise RuntimeError(f"Apache Kafka did not start: {said}")
            time.sleep(0.05)

    def _says_started(self) -> bool:
        return self._log[0].exists() and "] started (kafka.server.KafkaServer)" in self.log

    def _tells_clients_of_itself(self) -> bool:
        """Return whether clients learn of this broker and of a controller.

        Kafka says that it has started some tenths of a second before the first UpdateMetadata reaches it. Until then it
        tells clients that the cluster has no brokers. After such an answer librdkafka's AdminClient never asks again:
        it does not even send its request.
        """
        try:
            with WireClient(self.bootstrap, timeout_s=5.0) as client:
                answer = client.ask(MetadataRequest(topics=[]), 1)
        except (OSError, ConnectionClosed):
            return False
        return answer.controller_id >= 0 and self.broker_id in {broker.node_id for broker in answer.brokers}

    @property
    def log(self) -> str:
        """What it has logged since its start. In a shared JVM that includes what others have logged meanwhile."""
        path, size_before = self._log
        with path.open("rb") as file:
            file.seek(size_before)
            return file.read().decode("utf-8", "replace")

    def knows(self, broker_ids: Set[int]) -> bool:
        """Return whether it tells clients of all these brokers."""
        return known_broker_ids(self.host, self.port) >= broker_ids

    def kill(self) -> None:
        """Kill the broker with KILL. ``start`` brings it back once its session has ended."""
        self.process.kill()
        self._process = None

    def stop(self) -> None:
        """Stop the broker as TERM does, unless its JVM was killed."""
        if self._jvm is not None and self._jvm.is_alive:
            self._jvm.do("shutdown", self._properties)
        self._jvm = None
        if self._process is not None:
            self._process.stop(30.0)
            self._process = None

    def __enter__(self) -> ApacheKafkaBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def wait_until_all_know_each_other(brokers: Sequence[ApacheKafkaBroker]) -> None:
    """Wait until each of several brokers tells clients of all of them.

    The controller tells them about a new broker in parallel, so an older one may hear of it after the new one itself.
    """
    ids = {broker.broker_id for broker in brokers}
    deadline = time.monotonic() + START_TIMEOUT_S
    while lacking := [broker.broker_id for broker in brokers if not broker.knows(ids)]:
        assert time.monotonic() < deadline, f"brokers {lacking} did not hear of all of {sorted(ids)}"
        time.sleep(0.05)
