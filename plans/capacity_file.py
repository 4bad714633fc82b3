"""The file of ``--capacity``: TOML with what brokers and log dirs may hold."""

from __future__ import annotations

import tomllib

from engine.common.quantities import parse_size
from plans.errors import BadOption
from plans.options import BrokerCapacity, LogDirCapacity

_HINT = 'write [brokers] and 7 = "2 TB", or [log-dirs] and "7:/data/a" = "500 GB"'


def parse_capacities(text: str, where: str) -> tuple[tuple[BrokerCapacity, ...], tuple[LogDirCapacity, ...]]:
    """Return the capacities of a file, in order.

    Raises:
        BadOption: it is not TOML, or has an unknown key or size.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadOption(f"not TOML: {error}: {where}", hint=_HINT) from error
    for key in document:
        if key not in ("brokers", "log-dirs") or not isinstance(document[key], dict):
            raise BadOption(f"unknown key {key!r}: {where}", hint=_HINT)
    brokers = []
    for key, value in document.get("brokers", {}).items():
        if not key.isdecimal():
            raise BadOption(f"[brokers] {key}: not a broker id: {where}", hint=_HINT)
        brokers.append(BrokerCapacity(int(key), _size("brokers", key, value, where)))
    dirs = []
    for key, value in document.get("log-dirs", {}).items():
        broker, colon, path = key.partition(":")
        if not colon or not broker.isdecimal() or not path:
            raise BadOption(f"[log-dirs] {key}: must be BROKER:DIRECTORY: {where}", hint=_HINT)
        dirs.append(LogDirCapacity(int(broker), path, _size("log-dirs", key, value, where)))
    return (
        tuple(sorted(brokers, key=lambda capacity: capacity.broker)),
        tuple(sorted(dirs, key=lambda capacity: (capacity.broker, capacity.log_dir))),
    )


def _size(section: str, key: str, value: object, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        return parse_size(value if isinstance(value, str) else "")
    except ValueError as error:
        raise BadOption(f"[{section}] {key}: {error}: {where}", hint=_HINT) from error
