"""What pages say of the solver is true of the version that klamm is tested with."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_pages_name_the_pinned_solver_with_its_size() -> None:
    (pinned,) = re.findall(r"^highspy==(.+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    installed = distribution("highspy")
    assert installed.version == pinned
    files = [Path(str(file.locate())) for file in installed.files or () if file.suffix != ".pyc"]
    size = f"{sum(file.stat().st_size for file in files) / 1e6:.0f} MB"
    for page in ("install.md", "internals/planner.md"):
        text = " ".join((ROOT / "docs" / page).read_text("utf-8").split())
        pattern = r"HiGHS solver \(([^)]+)\)|highspy (\d[\d.]*), which `constraints.txt` pins: ([^.]+)\."
        (version,) = re.findall(pattern, text)
        assert size in " ".join(version), page
        assert page == "install.md" or pinned in version, page
