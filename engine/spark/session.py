"""Starts Spark for one command and ends it again, however the command ends.

    with spark_session("klamm spark merge", SparkOptions(master="local[2]"), java_home=home) as spark:
        ...

What the JVM and its workers write goes into a log file, and klamm prints its path. Under ``spark-submit``,
and where the process already has a session, that session is used and left running.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.common.errors import OperationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

OLDEST_PYSPARK = (4, 0)
DEFAULT_MASTER = "local[*]"
LOG_NAME = "spark.log"

_QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
_LOCAL = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Python workers beside the JVM do the work: the JVM's second compiler would only take their time."""
_STOP_PATIENCE_S = 10.0
_LOOK_EVERY_S = 0.25

OnProgress = Callable[[int, int], None]
"""Receives how many tasks are done, and of how many."""


class SparkError(OperationError):
    """Spark cannot be started, or one of klamm's jobs failed in it."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where and how Spark runs. ``master`` None: that of ``--conf`` or of ``spark-submit``, else local."""

    master: str | None = None
    confs: tuple[tuple[str, str], ...] = ()
    packages: tuple[str, ...] = ()


def parse_conf(text: str) -> tuple[str, str]:
    """Return name and value of ``NAME=VALUE``.

    Raises:
        OperationError: it does not have that form.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        hint = "write NAME=VALUE, such as spark.executor.memory=2g"
        raise OperationError(f"not a Spark setting: {text!r}", hint=hint)
    return name.strip(), value.strip()


def check_pyspark() -> tuple[int, int]:
    """Return the version of the installed PySpark, without importing it.

    Raises:
        SparkError: there is none, it is too old, or it comes without a JVM side.
    """
    spec = util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SparkError("PySpark is not installed in this environment", hint="run: pip install 'klamm[spark]'")
    folder = Path(next(iter(spec.submodule_search_locations)))
    version = pyspark_version(folder)
    if version < OLDEST_PYSPARK:
        version_text = ".".join(map(str, version))
        raise SparkError(
            f"PySpark {version_text} is too old: klamm needs 4.0 or newer", hint="run: pip install 'klamm[spark]'"
        )
    if not (folder / "jars").is_dir() and "SPARK_HOME" not in os.environ:
        hint = "install pyspark instead of pyspark-client, or set SPARK_HOME"
        raise SparkError(f"the installed PySpark has no Spark in it: {folder}", hint=hint)
    return version


def pyspark_version(folder: Path) -> tuple[int, int]:
    """Return major and minor version of the PySpark in a folder, from a release's own file or its metadata."""
    with suppress(OSError):
        match = re.search(r"__version__[^=]*= *\"(\d+)\.(\d+)", (folder / "version.py").read_text("utf-8"))
        if match is not None:
            return int(match[1]), int(match[2])
    with suppress(metadata.PackageNotFoundError, ValueError):
        major, minor = metadata.version("pyspark").split(".")[:2]
        return int(major), int(minor)
    raise SparkError(f"cannot tell the version of the PySpark in {folder}", hint="reinstall it: pip install pyspark")


@contextmanager
def spark_session(
    name: str,
    options: SparkOptions,
    *,
    java_home: Path | None = None,
    has_vector_module: bool = True,
    keeps_log: bool = False,
    on_log: Callable[[Path], None] = lambda path: None,
) -> Iterator[SparkSession]:
    """Yield a session, and end it and its JVM afterwards.

    Args:
        name: the job's name on Spark's own pages.
        java_home: the Java to run; None is Spark's own choice.
        has_vector_module: False if that Java lacks ``jdk.incubator.vector``, which Spark asks for.
        keeps_log: the file with Spark's own log stays.
        on_log: receives the path of that file.

    Raises:
        SparkError: PySpark is missing or too old, Spark does not start, or what ran in it failed.
    """
    check_pyspark()
    running = _running_session(name, options)
    if running is not None:
        with _failures_worded(None):
            yield running
        return
    folder = Path(tempfile.mkdtemp(prefix="klamm-spark-"))
    handler = signal.getsignal(signal.SIGINT)
    try:
        log = folder / LOG_NAME
        on_log(log)
        with _environment(options, folder, java_home, has_vector_module):
            yield from _own_session(name, options, log)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
        if not keeps_log:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def tasks_watched(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    """Report the progress of the jobs that run inside."""
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            with suppress(Exception):  # A context that was just stopped answers nothing.
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                known = [stage for stage in stages if stage is not None]
                if known:
                    on_progress(sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known))

    watcher = threading.Thread(target=watch, name="spark-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


_QUERY = "=== Streaming Query ==="
"""After this line Spark describes a failed query: its plan and its progress."""


def reason_of(error: BaseException) -> str:
    """Return in one line why something failed in Spark: the exception of Python code in a worker, else the JVM's."""
    text = str(error)
    java = getattr(error, "java_exception", None)
    if java is not None:
        with suppress(Exception):
            text = str(java.getMessage() or java.toString())
    text = text.partition(_QUERY)[0]
    if "Traceback (most recent call last)" in text:
        raised: list[str] = re.findall(r"^[A-Za-z_][\w.]*: (.+)$", text, re.MULTILINE)
        if raised:
            return raised[-1].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _running_session(name: str, options: SparkOptions) -> SparkSession | None:
    """Return the session of this process, or that of the JVM which ``spark-submit`` has started, or None."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not is_submitted and "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None or not is_submitted:
        return active
    builder = SparkSession.builder.appName(name)
    for key, value in (_QUIET | dict(options.confs)).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _own_session(name: str, options: SparkOptions, log: Path) -> Iterator[SparkSession]:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from klamm._worker_python import python_without_zips

    conf = SparkConf().setAppName(name).setAll(list(_settings(options).items()))
    gateway: Any = None
    with log.open("wb") as stderr, _processes_noted() as processes:
        try:
            # Exceptions of the JVM can be read only while it lives.
            with _failures_worded(log):
                gateway = launch_gateway(conf, {"stderr": stderr, "stdout": stderr})  # type: ignore[no-untyped-call]
                context = SparkContext(conf=conf, gateway=gateway)
                if is_in_threads(context.master) and context.pythonExec == sys.executable:
                    context.pythonExec = python_without_zips() or context.pythonExec
                yield SparkSession(context)
        finally:
            _end(gateway, processes)


@contextmanager
def _processes_noted() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Note the JVM as soon as it exists: Ctrl-C may come before PySpark has passed it on."""
    from pyspark import java_gateway

    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        # Popen returns only once the child has replaced its program. An interrupt before that would leave us without
        # the child's process id, and a JVM whose driver ended while it started never ends by itself.
        interrupts: list[int] = []
        with _on_interrupt(lambda: interrupts.append(signal.SIGINT)):
            started.append(subprocess.Popen(*arguments, **named))
        if interrupts:
            raise KeyboardInterrupt
        return started[-1]

    module: Any = java_gateway
    before, module.Popen = module.Popen, start
    try:
        yield started
    finally:
        module.Popen = before


@contextmanager
def _on_interrupt(act: Callable[[], object]) -> Iterator[None]:
    """Make Ctrl-C call ``act`` inside, and nothing else."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(gateway: Any, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End session and JVM. A JVM that was still starting is killed, and so is every JVM at a second Ctrl-C."""
    from pyspark import SparkContext

    def kill() -> None:
        for process in processes:
            process.kill()

    with _on_interrupt(kill):
        if gateway is None:
            kill()
        context = SparkContext._active_spark_context
        if context is not None:
            stopping = threading.Thread(target=_stop_quietly, args=(context,), name="spark-stop", daemon=True)
            stopping.start()
            stopping.join(_STOP_PATIENCE_S)
        if gateway is not None:
            with suppress(Exception):
                gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        for process in processes:
            _end_process(process)


def _stop_quietly(context: Any) -> None:
    from pyspark.sql import SparkSession

    with suppress(Exception):
        active = SparkSession.getActiveSession()
        (context if active is None else active).stop()


def _end_process(process: subprocess.Popen[bytes]) -> None:
    try:
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        process.wait(_STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _settings(options: SparkOptions) -> dict[str, str]:
    given = dict(options.confs)
    master = options.master or given.get("spark.master") or os.environ.get("MASTER") or DEFAULT_MASTER
    settings = _QUIET | (_LOCAL if is_local(master) else {}) | given | {"spark.master": master}
    if options.packages:
        settings["spark.jars.packages"] = ",".join(
            [*filter(None, [given.get("spark.jars.packages")]), *options.packages]
        )
    return settings


def is_local(master: str) -> bool:
    """Whether executors are threads of the driver's JVM, or processes on the same machine."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def is_in_threads(master: str | None) -> bool:
    """Whether executors are threads of the driver's JVM, so that this process's Python and code are theirs."""
    return master is not None and (master == "local" or master.startswith("local["))


@contextmanager
def _environment(
    options: SparkOptions, folder: Path, java_home: Path | None, has_vector_module: bool
) -> Iterator[None]:
    """Set what Spark's scripts read from the environment: the Java, and the Python of the workers."""
    wanted = {"PYTHONHASHSEED": "0"}
    python = dict(options.confs).get("spark.pyspark.python")
    if python is not None or is_local(_settings(options)["spark.master"]):
        wanted["PYSPARK_PYTHON"] = python or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if java_home is not None:
        wanted["JAVA_HOME"] = str(java_home if has_vector_module else _java_without_vector(folder, java_home))
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _java_without_vector(folder: Path, java_home: Path) -> Path:
    """Return a Java home whose program leaves out a module that the real one does not have.

    Spark's launcher adds ``--add-modules=jdk.incubator.vector`` by itself, and a Java without that module ends at once.
    """
    program = folder / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    real = str(java_home / "bin" / "java").replace("'", "'\\''")
    program.write_text(
        "#!/usr/bin/env bash\nkept=()\n"
        'for word in "$@"; do [ "$word" = --add-modules=jdk.incubator.vector ] || kept+=("$word"); done\n'
        f"exec '{real}' \"${{kept[@]}}\"\n"
    )
    program.chmod(0o755)
    return program.parents[1]


@contextmanager
def _failures_worded(log: Path | None) -> Iterator[None]:
    """Turn PySpark's errors into one line, with the beginning of the log if Spark did not even start."""
    try:
        yield
    except OperationError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        if "JAVA_GATEWAY_EXITED" in str(error):
            complaint, hint = _complaint(log)
            raise SparkError(f"Spark did not start: {complaint}", hint=hint) from None
        raise SparkError(f"Spark: {reason_of(error)}", hint="--verbose keeps Spark's log") from None


def _complaint(log: Path | None) -> tuple[str, str]:
    """Return why the JVM ended, and what to do about it: Spark's own error, else the first line of a broken Java."""
    text = "" if log is None or not log.exists() else log.read_text("utf-8", "replace")
    ended = re.search(r'^Exception in thread "main" [\w.$]+: (.+)$', text, re.MULTILINE)
    if ended is not None:
        return ended[1].strip(), "--verbose keeps Spark's log"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING: ")]
    return lines[0] if lines else "its JVM ended", "does java -version work there?"
