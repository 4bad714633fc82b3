"""CI runs some targets side by side: a failure of any fails the run, and the output of each stays in one piece."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci" / "run"
MAKE = """\
#!/bin/sh
echo "$1 begins"
# None ends before all have begun.
touch "$MEETING/$1.begun"
if [ "$1" != env ] && [ "$1" != lint ]; then
  cd "$MEETING"
  until [ -e test.begun ] && [ -e interop.begun ] && [ -e package.begun ] && [ -e site.begun ]; do sleep 0.01; done
fi
echo "$1 ends"
[ "$1" != "$BROKEN" ]
"""
PYTHON = """\
#!/bin/sh
if [ "$1" = -c ]; then echo "$FAILED"; elif [ "$2" = pytest ]; then echo "once more"; exit "$AGAIN"; fi
"""


def ran(folder: Path, broken: str, failed: str = "", again: int = 0) -> subprocess.CompletedProcess[str]:
    """Run CI with targets that only speak, after which pytest knows of ``failed`` tests that have failed."""
    run = folder / ".ci" / "run"
    for path, text in {
        run: RUN.read_text(),
        folder / "make": MAKE,
        folder / ".venv" / "bin" / "python": PYTHON,
        folder / ".venv" / "bin" / "pip": "",
        folder / "kcat": "#!/bin/sh\n",
        folder / "krb5kdc": "#!/bin/sh\n",
        folder / "promtool": "#!/bin/sh\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    environment = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "MEETING": str(folder), "BROKEN": broken, "FAILED": failed,
        "AGAIN": str(again),
    }  # fmt: skip
    return subprocess.run([run], env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("broken", ["nothing", "interop", "package", "site", "test"])
def test_all_targets_run_and_any_failure_fails_the_run(tmp_path: Path, broken: str) -> None:
    done = ran(tmp_path, broken)
    said = "env begins\nenv ends\ntest begins\ntest ends\n"
    said += "".join(f"== make {name}\n{name} begins\n{name} ends\n" for name in ("interop", "package", "site"))
    if broken != "nothing":
        said += f"error: failed: {broken}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0 if broken == "nothing" else 1, said, "")


@pytest.mark.parametrize("target", ["test", "interop"])
@pytest.mark.parametrize(("failed", "again", "code"), [("1", 0, 0), ("8", 0, 0), ("9", 0, 1), ("2", 1, 1), ("0", 0, 1)])
def test_up_to_eight_tests_that_failed_run_once_more(
    tmp_path: Path, target: str, failed: str, again: int, code: int
) -> None:
    """The output counts them. One that fails again fails the run."""
    done = ran(tmp_path, target, failed, again)
    assert done.returncode == code
    named = f"== make {target}: tests that failed run once more: {failed}\nlint begins\nlint ends\nonce more\n"
    assert (named in done.stdout) == (failed in ("1", "2", "8"))
