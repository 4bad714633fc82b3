"""``klamm completion``: scripts with which the Tab key of a shell completes klamm's commands."""

from __future__ import annotations

from typing import Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import single_command
from cli.framework.completing import one_of
from cli.framework.invocation import Invocation
from cli.framework.stdout import data_stream

SHELLS = ("bash", "zsh", "fish")


@single_command(
    "completion",
    examples=(
        "klamm completion bash > ~/.local/share/bash-completion/completions/klamm",
        "klamm completion zsh >> ~/.zshrc",
        "klamm completion fish > ~/.config/fish/completions/klamm.fish",
    ),
)
def command(
    invocation: Invocation,
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="Your shell.", autocompletion=one_of(*SHELLS))],
) -> None:
    """Print the script that makes your shell complete commands, options, topics and brokers.

    For names of topics and brokers it asks the cluster that the command line names, for a second at most.
    """
    from typer._completion_shared import get_completion_script

    if shell not in SHELLS:
        raise UsageError(f"completion works for {', '.join(SHELLS)}, not for {shell!r}")
    with data_stream() as stream:
        stream.write(get_completion_script(prog_name="klamm", complete_var="_KLAMM_COMPLETE", shell=shell) + "\n")
