"""The fixtures, in separate pytest runs. tests/package tries them with only klamm, pytest and a client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from engine.local.probe import answers_api_versions

TESTS = """\
import json, os

def address(name, cluster):
    with open(f"{name}-{os.environ['PYTEST_XDIST_WORKER']}.json", "w") as file:
        json.dump([cluster.bootstrap_servers, str(cluster.directory)], file)

def test_one(kafka):
    address("one", kafka)

def test_two(kafka):
    address("two", kafka)
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder as another project does, without the environment of klamm's own tests."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", *options]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=240, check=False)


def test_each_worker_has_a_cluster_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    ran = run_pytest(tmp_path, "-n", "2", "--dist", "each")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    clusters = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert set(clusters) == {"one-gw0", "two-gw0", "one-gw1", "two-gw1"}
    assert clusters["one-gw0"] == clusters["two-gw0"] != clusters["one-gw1"] == clusters["two-gw1"]
    assert not any(Path(folder).exists() for _, folder in clusters.values())


FAILING = """\
import pytest

@pytest.mark.kafka_cluster(1, config={"num.io.threads": "many"})
def test_it(kafka_cluster):
    pass

@pytest.mark.kafka_cluster(1)
def test_that_fails(kafka_cluster):
    with open("address", "w") as file:
        file.write(kafka_cluster.bootstrap_servers)
    assert not kafka_cluster.bootstrap_servers
"""


def test_a_cluster_that_does_not_start_is_told_and_one_of_a_failed_test_is_ended(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING)
    ran = run_pytest(tmp_path)
    assert ran.returncode == 1
    assert "1 failed, 1 error" in ran.stdout
    assert "num.io.threads" in ran.stdout
    host, _, port = (tmp_path / "address").read_text().partition(":")
    assert not answers_api_versions(host, int(port))
