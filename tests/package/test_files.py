"""The wheel and the sdist contain everything that git has of it, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from installed_klamm import CODE, ROOT, build, contents, git_files

pytestmark = pytest.mark.timeout(900)


def _info(wheel: Path) -> str:
    """Return the name of the wheel's metadata folder."""
    name, version, *_ = wheel.name.split("-")
    return f"{name}-{version}.dist-info"


def test_the_wheel_lands_under_one_name(wheel: Path) -> None:
    assert {name.split("/")[0] for name in contents(wheel)} == {"klamm", _info(wheel)}


def test_the_wheel_has_every_file_of_the_code_and_no_other(wheel: Path) -> None:
    wanted = {name for name in git_files() if name.startswith("klamm/")}
    wanted |= {f"klamm/_app/{name}" for name in git_files() if name.split("/")[0] in CODE}
    files = {name for name in contents(wheel) if not name.startswith(_info(wheel))}
    assert files == wanted
    assert {f"klamm/_app/{folder}/py.typed" for folder in CODE} | {"klamm/py.typed"} <= files


def test_the_sdist_has_every_file_of_git(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        files = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert files == git_files() | {"PKG-INFO"}


def test_a_wheel_made_of_the_sdist_is_the_same(dist: Path, wheel: Path, tmp_path: Path) -> None:
    sdist = next(dist.glob("*.tar.gz"))
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)
    build(tmp_path / sdist.name.removesuffix(".tar.gz"), "wheel", into=tmp_path)
    assert contents(tmp_path / wheel.name) == contents(wheel)


def test_an_editable_install_copies_nothing(wheel: Path, tmp_path: Path) -> None:
    """A copy would become stale, and would be found before the checkout."""
    code = f"from hatchling.build import build_editable; build_editable({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    files = contents(next(tmp_path.glob("*.whl")))
    assert {name: text.decode() for name, text in files.items() if not name.startswith(_info(wheel))} == {
        "_klamm.pth": str(ROOT)
    }
