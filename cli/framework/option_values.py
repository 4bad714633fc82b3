"""Values of options: durations with units or as plain seconds, addresses to listen at."""

from __future__ import annotations

from typer._click.exceptions import UsageError


def seconds_option(name: str, text: str) -> float:
    """Return the seconds that an option means.

    Raises:
        UsageError: it is not a duration, or not above 0.
    """
    from engine.common.quantities import parse_duration_s

    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error
    if not seconds > 0:
        raise UsageError(f"{name} must be a time above 0")
    return seconds


def address_option(name: str, text: str) -> tuple[str, int]:
    """Return host and port of ``[HOST]:PORT``; without a host it is every address of this machine.

    Raises:
        UsageError: it is not an address.
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{name} must be [HOST]:PORT, not {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
