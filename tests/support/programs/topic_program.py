"""Runs commands in this process against the running cluster, with a topic of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klamm_program import Ran, in_process

from engine.local.cluster import LocalCluster

Program = Callable[..., Ran]


@pytest.fixture
def commands(
    live_cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Program:
    """Runs commands against the cluster, in an empty folder."""
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", live_cluster.bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    return lambda *words: in_process(*words, capture=capsys)


@pytest.fixture
def program(commands: Program, topic_name: str) -> Program:
    """Runs commands against the cluster, which has a topic of two partitions."""
    assert commands("topics", "create", topic_name, "--partitions", "2", "--replication-factor", "1").code == 0
    return commands
