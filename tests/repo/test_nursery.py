"""A program that was forked off a nursery is as one that starts on its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from klamm_program import PROGRAM, environment, klamm
from nursery import NURSERIES
from patience import wait_for

from engine.local.cluster import LocalCluster
from engine.local.processes import LocalProcess, ProcessId

SUPPORT = Path(__file__).parents[1] / "support" / "run"
RUN = """\
import sys
from pathlib import Path
from nursery import NURSERIES
from engine.local.cluster import LocalCluster
NURSERIES.install()
with LocalCluster(1, directory=Path(sys.argv[1])) as cluster:
    process = cluster.broker(0).process
    print(process.pid, process.identity.start_ticks, flush=True)
    sys.stdin.read()
"""


def test_its_environment_output_folder_session_and_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NURSERIES.is_open
    monkeypatch.chdir(tmp_path)
    with LocalCluster(1, directory=tmp_path / "cluster") as cluster:
        broker = cluster.broker(0)
        process = broker.process
        assert process is not None
        proc = Path(f"/proc/{process.pid}")
        parent = int((proc / "stat").read_text().rpartition(")")[2].split()[1])
        assert parent == os.getpid()
        assert b"nursery.py" in (proc / "cmdline").read_bytes()
        assert os.readlink(proc / "cwd") == str(tmp_path)
        assert [os.readlink(proc / "fd" / str(number)) for number in (1, 2)] == [str(broker.output_path)] * 2
        assert (os.getsid(process.pid), process.exit_code) == (process.pid, None)
        assert (broker.logs_path / "server.log").exists(), "LOG_DIR is its own"
        assert process.stop()
        assert (process.exit_code, process.is_alive) == (0, False)
        cluster.start_broker(0)
        process = broker.process
        assert process is not None
        process.kill()
        assert process.exit_code == -signal.SIGKILL


def test_it_is_killed_with_the_process_that_runs_the_tests(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", RUN, tmp_path], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        pid, start_ticks = map(int, run.stdout.readline().split())
        broker = LocalProcess(ProcessId(pid, start_ticks))
        assert broker.is_alive
        run.kill()
        assert broker.wait(30)


def test_klamm_has_its_own_environment_folder_streams_and_exit_code(tmp_path: Path) -> None:
    merge = [PROGRAM, "state-changes", "merge", "-"]
    with subprocess.Popen(merge, cwd=tmp_path, env=environment(tmp_path), stdin=subprocess.PIPE) as process:
        assert b"nursery.py" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert os.readlink(f"/proc/{process.pid}/cwd") == str(tmp_path)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert klamm("profiles", "add", "prod", "--bootstrap-server", "h:1", folder=tmp_path).code == 0
    assert (tmp_path / "config" / "klamm" / "clusters.toml").exists()
    wrong = klamm("state-changes", "merge", "-", "--absent", folder=tmp_path, stdin="x\n")
    assert (wrong.code, wrong.out, "--absent" in wrong.err) == (2, "", True), wrong.err


def test_a_changed_python_starts_on_its_own(tmp_path: Path) -> None:
    assert klamm("--version", folder=tmp_path).code == 0
    command, own = [PROGRAM, "state-changes", "merge", "-"], environment(tmp_path, PYTHONUTF8="0")
    with subprocess.Popen(command, env=own, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert b"nursery.py" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.kill()


FIRST_AND_NEXT = """\
import subprocess, sys
from pathlib import Path
from klamm_program import PROGRAM, environment
from nursery import NURSERIES
NURSERIES.install()
folder = Path(sys.argv[1])
for changed in ({"PYTHONUTF8": "0"}, {"PYTHONDONTWRITEBYTECODE": ""}, {}):
    own = environment(folder, **changed)
    with subprocess.Popen([PROGRAM, "state-changes", "merge", "-"], env=own, stdin=subprocess.PIPE) as process:
        print("nursery.py" in Path(f"/proc/{process.pid}/cmdline").read_text(), flush=True)
        process.kill()
"""


def test_a_changed_python_that_comes_first_keeps_no_other_out(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", FIRST_AND_NEXT, tmp_path], env=environ, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["False", "True", "True"], run.stderr


LOADED_ONCE = """\
import os, sys
from pathlib import Path
with Path("loaded").open("a") as file:
    print("once", file=file)

def test_it(worker_id):
    main = sys.modules["__main__"]
    with Path("ran").open("a") as file:
        print(os.getppid(), os.getsid(0), sys.argv[0], hasattr(main, "__file__"), worker_id, file=file)
"""


def in_workers(folder: Path, count: int) -> subprocess.Popen[str]:
    """Start pytest, with so many processes that run tests, in a session of its own."""
    words = ("-c", os.devnull, "-o", f"pythonpath={SUPPORT}", "-p", "nursery", "--rootdir", folder)
    words = (*words, "-p", "xdist", "-n", str(count), "--dist", "loadfile", "--import-mode=importlib")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *words],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, start_new_session=True,
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_processes_that_run_tests_have_loaded_them_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(LOADED_ONCE)
    with in_workers(tmp_path, 2) as run:
        out, _ = run.communicate(timeout=120)
    assert (run.returncode, "2 passed" in out) == (0, True), out
    assert (tmp_path / "loaded").read_text() == "once\n" * 2, "two files, by one process"
    seen = sorted((tmp_path / "ran").read_text().splitlines())
    assert seen == [f"{run.pid} {run.pid} -c False gw{number}" for number in (0, 1)]


def test_a_file_that_cannot_be_imported_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_module\n\ndef test_it():\n    pass\n")
    (tmp_path / "test_whole.py").write_text("def test_it():\n    pass\n")
    with in_workers(tmp_path, 2) as run:
        out, _ = run.communicate(timeout=120)
    assert (run.returncode, "ERROR test_broken.py" in out) == (1, True), out


def test_ctrl_c_ends_them_and_their_nursery_says_nothing(tmp_path: Path) -> None:
    """As ``tests/conftest.py`` does, this one lets a run in the background hear of it."""
    (tmp_path / "conftest.py").write_text("import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n")
    (tmp_path / "test_a.py").write_text(
        "import time\nfrom pathlib import Path\ndef test_it():\n    Path('ran').touch()\n    time.sleep(600)\n"
    )
    with in_workers(tmp_path, 1) as run:
        wait_for(lambda: (tmp_path / "ran").exists())
        os.killpg(run.pid, signal.SIGINT)
        out, _ = run.communicate(timeout=120)
    assert (run.returncode, "no tests ran" in out, "recv_fds" in out) == (2, True, False), out
