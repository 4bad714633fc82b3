"""The demo stops everything that it started, however it ends; a plan empties the broker that it retires."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from klamm_program import environment, klamm

DEMO = Path(__file__).with_name("demo.py")
WAIT_S = 60.0


def processes_in(folder: Path) -> list[str]:
    """Return the command lines that name a folder."""
    pids = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(folder) in words:
            pids.append(words)
    return pids


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "KLAMM_DEMO_RECORDS": "100"}
    demo = subprocess.Popen(
        [sys.executable, "-u", DEMO], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    assert demo.stdout is not None
    try:
        while "A topic:" not in (line := demo.stdout.readline()):
            assert line, "the demo has ended"
        assert processes_in(tmp_path)
        os.killpg(demo.pid, number)
        said, _ = demo.communicate(timeout=WAIT_S)
    finally:
        demo.kill()
        demo.wait()
    assert (demo.returncode, "interrupted" in said) == (130, True), said
    deadline = time.monotonic() + WAIT_S
    while processes_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_in(tmp_path) == []
    assert list(tmp_path.glob("klamm-demo-*")) == []


RETIRE = """
from demo import fill, json, klamm, retire_a_broker
klamm("local", "up", "--brokers", "4", "--detach", "--quiet", "--host", "own")
fill(json.loads(klamm("local", "status", "-o", "json", show=False))["bootstrap_servers"])
retire_a_broker()
"""


def test_a_plan_ends_the_life_of_a_broker(tmp_path: Path) -> None:
    """The demo's own steps, on a cluster of its own: topics with records, then broker 3 retires."""
    variables = environment(tmp_path, PYTHONPATH=str(DEMO.parent), KLAMM_DEMO_RECORDS="1000")
    try:
        ran = subprocess.run(
            [sys.executable, "-c", RETIRE], cwd=tmp_path, env=variables, text=True, capture_output=True,
            timeout=4 * WAIT_S, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, (ran.stdout, ran.stderr)
        topics = klamm("topics", "describe", "-o", "json", folder=tmp_path).json
    finally:
        assert klamm("local", "down", "--quiet", folder=tmp_path).code == 0
    held = {topic["topic"]: {b for p in topic["partitions"] for b in p["replicas"]} for topic in topics}
    assert held["orders"] == held["archive"] == {0, 1, 2}, held
    assert not [topic for topic, brokers in held.items() if 3 in brokers], "nothing is left on the broker"
    score = json.loads((tmp_path / "plan.json").read_text())["klamm"]["score"]
    assert score["is_optimal"] and score["moves"] == sum(broker["replicas_in"] for broker in score["brokers"]) > 0
    assert "no plan needs fewer bytes" in ran.stdout and "20,000 records read from where they are now" in ran.stdout
