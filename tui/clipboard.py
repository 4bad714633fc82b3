"""Where a copied text goes: to the machine's own clipboard if a program for it is installed, and to the terminal's.

A terminal takes it by OSC 52, also over SSH; some are configured not to, and none says whether it did.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping

NATIVE_LIMIT_S = 2.0
TERMINAL_BYTES_MAX = 74_994
"""The most that common terminals take in one OSC 52, before it is encoded."""


def native_command(environment: Mapping[str, str], platform: str = sys.platform) -> list[str] | None:
    """Return the program that writes this session's clipboard; None if there is none.

    Over SSH without a display, such a program would write the remote machine's clipboard, from which nobody pastes.
    """
    if platform == "darwin" and not environment.get("SSH_CONNECTION"):
        candidates = [["pbcopy"]]
    else:
        candidates = [["wl-copy"]] if environment.get("WAYLAND_DISPLAY") else []
        if environment.get("DISPLAY"):
            candidates += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    path = environment.get("PATH")
    return next((words for words in candidates if shutil.which(words[0], path=path)), None)


async def copy_natively(text: str, command: list[str], environment: Mapping[str, str]) -> str:
    """Have the program take the text; return why it failed, or an empty text."""
    quiet = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=quiet, stderr=quiet, env=dict(environment)
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror or error}"
    try:
        async with asyncio.timeout(NATIVE_LIMIT_S):
            await process.communicate(text.encode())
    except TimeoutError:
        return f"{command[0]} did not end within {NATIVE_LIMIT_S:g} s"
    finally:
        # Another copy may have come, or the dashboard ends.
        if process.returncode is None:
            process.kill()
            await process.wait()
    return "" if process.returncode == 0 else f"{command[0]} ended with {process.returncode}"


def told(used: str, why_not: str, size_bytes: int) -> str:
    """Return the message that follows copying."""
    if used:
        return f"copied by {used}, and by the terminal (OSC 52)"
    if size_bytes > TERMINAL_BYTES_MAX:
        reason = "more than terminals take: ^s writes a file"
    else:
        reason = why_not or "if it takes that"
    return f"copied by the terminal (OSC 52): {reason}"
