"""Values kept elsewhere: ``${env:NAME}``, ``${file:PATH:KEY}``, ``${directory:PATH:FILE}`` (KIP-297, 421, 887).

In a client's properties Kafka's three providers are known by these names without being declared. ``config.providers``
may give them other names, ``config.providers.NAME.param.allowed.paths`` and ``….allowlist.pattern`` limit what they
read, as in Kafka. A broker's file declares each that it uses.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from engine.common.errors import ConfigError
from engine.kafka.config.properties import parse_properties

_REFERENCE = re.compile(r"\$\{([^}:]*+):(?:([^}:]*+):)?([^}]*+)\}")
_CLASSES = {
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": "directory",
}

FILE_BYTES_MAX = 1024 * 1024
"""The largest file that a broker reads: who may alter its settings may name any, and the event loop waits for it."""


def resolve_references(
    entries: Mapping[str, str], environment: Mapping[str, str], *, declared: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the properties with every reference replaced; one of an unknown provider stays as it is, as in Kafka.

    Args:
        declared: what declares the providers, all of them; None: the properties themselves, and Kafka's three are
            known without that. With it, only regular files of at most ``FILE_BYTES_MAX`` are read.

    Raises:
        ConfigError: a provider's class is unknown, or a reference leads nowhere. The message holds no value.
    """
    if not any("${" in value for value in entries.values()):
        return dict(entries)
    size_max = None if declared is None else FILE_BYTES_MAX
    known = _CLASSES.values() if declared is None else ()
    declared = entries if declared is None else declared
    providers = {kind: kind for kind in known} | _declared_providers(declared)

    def look_up(key: str) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            name, path, wanted = match[1], match[2] or "", match[3]
            if name not in providers:
                return match[0]
            prefix = f"config.providers.{name}.param."
            limits = {k.removeprefix(prefix): v for k, v in declared.items() if k.startswith(prefix)}
            return _value(providers[name], path, wanted, limits, environment, size_max, f"{key}={match[0]}")

        return replace

    return {
        key: value if key.startswith("config.providers") else _REFERENCE.sub(look_up(key), value)
        for key, value in entries.items()
    }


def _declared_providers(entries: Mapping[str, str]) -> dict[str, str]:
    """Return the kind of each provider by its name."""
    providers = {}
    for name in filter(None, (part.strip() for part in entries.get("config.providers", "").split(","))):
        class_name = entries.get(f"config.providers.{name}.class", "")
        if class_name not in _CLASSES:
            raise ConfigError(f"config.providers.{name}.class={class_name} is not one of Kafka's own config providers")
        providers[name] = _CLASSES[class_name]
    return providers


def _value(
    kind: str,
    path: str,
    wanted: str,
    limits: Mapping[str, str],
    environment: Mapping[str, str],
    size_max: int | None,
    where: str,
) -> str:
    if kind == "env":
        try:
            allowed = re.fullmatch(limits.get("allowlist.pattern", ".*"), wanted)
        except re.error as error:
            raise ConfigError(f"allowlist.pattern is not a regular expression ({error}): {where}") from None
        if path or not allowed or wanted not in environment:
            raise ConfigError(f"no such environment variable: {where}")
        return environment[wanted]
    place = Path(path)
    roots = (root.strip() for root in limits.get("allowed.paths", "").split(","))
    allowed_paths = [Path(root).resolve() for root in roots if root]
    try:
        if allowed_paths and not any(place.resolve().is_relative_to(allowed_path) for allowed_path in allowed_paths):
            raise ConfigError(f"not below allowed.paths: {where}")
        if kind == "directory":
            if Path(wanted).name != wanted:
                raise ConfigError(f"not the name of a file: {where}")
            return _text(place / wanted, size_max, where)
        return parse_properties(_text(place, size_max, where))[wanted]
    except KeyError:
        raise ConfigError(f"the file has no such key: {where}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"the file cannot be read ({getattr(error, 'strerror', None) or error}): {where}") from None


def _text(place: Path, size_max: int | None, where: str) -> str:
    if size_max is None:
        return place.read_text(encoding="utf-8-sig")
    content = b""
    # A pipe is not even opened: that waits for a writer.
    if is_regular := stat.S_ISREG(place.stat().st_mode):
        with place.open("rb") as file:
            content = file.read(size_max + 1)
    if not is_regular or len(content) > size_max:
        raise ConfigError(f"not a regular file of at most {size_max // 1024**2} MB: {where}")
    return content.decode("utf-8-sig")
