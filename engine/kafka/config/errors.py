"""Why settings are refused although each value is valid. The class decides the answer to a client, as in Kafka."""

from __future__ import annotations

from engine.common.errors import ConfigError


class RequirementError(ConfigError):
    """A rule over several settings is broken. Kafka says "requirement failed: " before its text."""


class InvalidConfigurationError(ConfigError):
    """Settings that Kafka refuses with its InvalidConfigurationException: the text goes to clients as it is."""


class ReconfigurationError(ConfigError):
    """A running broker cannot change to these settings, although each of them is allowed."""


def require(condition: bool, message: str, *, key: str) -> None:
    """Raise RequirementError with that message unless the condition holds."""
    if not condition:
        raise RequirementError(message, key=key)
