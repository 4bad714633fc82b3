"""The wheel and the sdist, built once, and an environment that at first holds only the wheel."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed_klamm import ROOT, Installed, build, new_environment


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, "wheel", "sdist", into=folder)
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with the wheel, without extras."""
    made = new_environment(tmp_path_factory.mktemp("installed"))
    made.install(wheel)
    return made


@pytest.fixture(scope="session")
def with_client(installed: Installed) -> Installed:
    """The same environment, with pytest and a client beside klamm."""
    installed.install("pytest", "confluent-kafka")
    return installed
