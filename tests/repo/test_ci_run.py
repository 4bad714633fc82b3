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
if [ "$1" != test ] && [ "$1" != env ]; then
  until cd "$MEETING" && [ -e interop.begun ] && [ -e package.begun ] && [ -e site.begun ]; do sleep 0.01; done
fi
echo "$1 ends"
[ "$1" != "$BROKEN" ]
"""


@pytest.mark.parametrize("broken", ["nothing", "interop", "package", "site", "test"])
def test_all_targets_run_and_any_failure_fails_the_run(tmp_path: Path, broken: str) -> None:
    run = tmp_path / ".ci" / "run"
    python = tmp_path / ".venv" / "bin" / "python"
    for path, text in {
        run: RUN.read_text(),
        tmp_path / "make": MAKE,
        python: "#!/bin/sh\n",
        tmp_path / "kcat": "#!/bin/sh\n",
        tmp_path / "krb5kdc": "#!/bin/sh\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "MEETING": str(tmp_path), "BROKEN": broken}
    done = subprocess.run([run], env=environment, capture_output=True, text=True, timeout=60, check=False)
    said = "env begins\nenv ends\ntest begins\ntest ends\n"
    if broken != "test":
        said += "".join(f"== make {name}\n{name} begins\n{name} ends\n" for name in ("interop", "package", "site"))
    if broken not in ("nothing", "test"):
        said += f"error: failed: {broken}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0 if broken == "nothing" else 1, said, "")
