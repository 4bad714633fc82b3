"""``klamm doctor``: what is missing on this machine and how to get it."""

from __future__ import annotations

from pathlib import Path

from cli.framework.command import single_command
from cli.framework.invocation import Invocation
from cli.output.report import Report


@single_command("doctor", examples=("klamm doctor", "klamm doctor -o json | jq '.[] | select(.status != \"ok\")'"))
def command(invocation: Invocation) -> Report:
    """Say what is missing on this machine and how to get it.

    Exits with 1 when something is missing that klamm's main uses need; what is optional does not count.
    """
    from cli.views.doctor import doctor_report
    from engine.local.doctor import examine

    return doctor_report(examine(Path.cwd() / ".klamm"))
