"""The guide "Plans in a pull request", step by step on three brokers: its own commands and both of its workflows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_pages import DOCS, fenced_blocks
from guest_cluster import GuestCluster
from guide_runner import Runner
from operated_cluster import Capture, Klamm, filled

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

GUIDE = DOCS / "guides" / "plans-in-a-pull-request.md"


def blocks(language: str) -> list[str]:
    return fenced_blocks(GUIDE, language)


def github_jobs() -> dict[str, list[str]]:
    workflow = next(yaml.safe_load(block) for block in blocks("yaml") if "jobs:" in block)
    return {
        name: [step["run"] for step in job["steps"] if "klamm plan" in step.get("run", "")]
        for name, job in workflow["jobs"].items()
    }


def gitlab_jobs() -> dict[str, list[str]]:
    pipeline = next(yaml.safe_load(block) for block in blocks("yaml") if "script:" in block)
    return {name: job["script"] for name, job in pipeline.items() if isinstance(job, dict) and "script" in job}


@pytest.fixture(scope="module")
def brokers(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "controlled.shutdown.retry.backoff.ms": "100",
    }
    folder = tmp_path_factory.mktemp("ci")
    with GuestCluster(zookeeper, 3, directory=folder, config=settings, racks=["a", "b", "c"]) as cluster:
        yield cluster


def plan_and_check(runner: Runner) -> dict[str, Any]:
    """Make the plan as the guide's first block says, without its last line."""
    for line in blocks("console")[0].splitlines()[:-1]:
        ran = runner(line.removeprefix("$ "))
        assert ran.returncode == 0, (line, ran.stderr)
    plan: dict[str, Any] = json.loads((runner.folder / "plan.json").read_text())
    return plan


@pytest.mark.parametrize("host", ["github", "gitlab"])
def test_a_plan_goes_from_a_snapshot_to_a_clean_drift_check(
    brokers: LocalCluster, capsys: Capture, tmp_path: Path, topic_name: str, host: str
) -> None:
    klamm = Klamm(capsys, "--bootstrap-server", brokers.bootstrap_servers)
    filled(klamm, topic_name, "0:1,0:1,0:1")
    runner = Runner(tmp_path, brokers.bootstrap_servers)

    # The guide's broker has its logs elsewhere.
    log_dir = next(broker.log_dirs[0] for broker in brokers.status().brokers if broker.id == 1)
    (tmp_path / "policy.toml").write_text(blocks("toml")[0].replace("/data/a", log_dir))
    plan = plan_and_check(runner)
    assert plan["klamm"]["score"]["moves"] > 0
    jobs = github_jobs() if host == "github" else gitlab_jobs()
    assert list(jobs) == ["check", "apply", "drift"]
    for name, lines in jobs.items():
        assert lines
        for line in lines:
            ran = runner(line)
            reports = [report.read_text() for report in tmp_path.glob("*.xml")]
            assert ran.returncode == 0, (name, line, ran.stdout, ran.stderr, reports)
    made = ["summary.md"] if host == "github" else ["quality.json", "checks.xml"]
    assert all((tmp_path / name).stat().st_size for name in made)
    again = runner("klamm plan rebalance --out again.json")
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "again.json").read_text())["partitions"] == [], "the cluster is level"

    moved = runner(f"klamm reassign execute --wait --yes --reassignment-json-file {somewhere_else(tmp_path, plan)}")
    assert moved.returncode == 0, moved.stderr
    assert runner(jobs["drift"][0]).returncode == 1, "somebody has moved a partition"


def somewhere_else(folder: Path, plan: dict[str, Any]) -> Path:
    """Return a file that reverses the replicas of the plan's first partition."""
    first = plan["partitions"][0]
    path = folder / "elsewhere.json"
    moved = {"topic": first["topic"], "partition": first["partition"], "replicas": first["replicas"][::-1]}
    path.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    return path
