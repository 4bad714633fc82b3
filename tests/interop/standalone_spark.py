"""Spark's standalone mode: a master and a worker, each a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from patience import within
from spark_sessions import SPARK_HOME, WITH_ARCHIVE

from engine.local.addresses import own_loopback_address
from engine.local.java import find_java
from klamm._worker_python import python_without_zips


@contextmanager
def standalone(folder: Path, hidden: Path) -> Iterator[str]:
    """A master and a worker of Spark's standalone mode, on an address of their own.

    The worker and its executors find the folder ``hidden`` empty, as on another machine.
    """
    host, port = own_loopback_address(), 7077
    started: list[subprocess.Popen[bytes]] = []
    environment = os.environ | {
        "SPARK_HOME": str(SPARK_HOME),
        "JAVA_HOME": str(find_java().program.resolve().parents[1]),
        "SPARK_LOCAL_IP": host,
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_JAVA_OPTS": WITH_ARCHIVE,
    }

    def start(kind: str, *words: str) -> None:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", host, *words]
        if kind == "worker.Worker":
            own_mounts = 'mount -t tmpfs none "$0" && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", own_mounts, str(hidden), *command]
        with (folder / f"{kind}.log").open("ab") as log:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    try:
        start("master.Master", "--port", str(port), "--webui-port", "8080")
        is_in_time = within(60)
        while not _listens(host, port):
            assert is_in_time() and started[0].poll() is None, (folder / "master.Master.log").read_text()
            time.sleep(0.1)
        start(
            "worker.Worker", "--port", "7078", "--webui-port", "8081", "-c", "2", "-m", "2g", f"spark://{host}:{port}"
        )
        yield f"spark://{host}:{port}"
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def submitted(
    master: str, folder: Path, settings: Mapping[str, str], files: Sequence[Path], given: object
) -> subprocess.CompletedProcess[str]:
    """Run ``job.py`` of a folder by ``spark-submit`` with ``--files`` and what it is given, in JSON."""
    settings = {
        **settings,
        # Spark gives up a worker that does not connect within ten seconds: so none compiles a zip.
        "spark.pyspark.python": python_without_zips() or sys.executable,
        "spark.executor.memory": "512m",
        # It begins when all executors are there.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "spark.cores.max": "2",
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    sent = ["--files", ",".join(map(str, files))]
    java = str(find_java().program.resolve().parents[1])
    ran = subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", "--master", master, *sent, *words, "job.py", json.dumps(given)],
        cwd=folder, capture_output=True, text=True, timeout=500, check=False,
        env=os.environ | {"JAVA_HOME": java, "SPARK_HOME": str(SPARK_HOME)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True
