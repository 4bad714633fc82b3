"""A Kafka client's properties (``--command-config``): the keys that klamm's own client honours.

Keys it does not know are kept but mean nothing, as in Kafka's clients; ``client_keys`` finds typing errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.common.errors import ConfigError
from engine.common.model import SecurityProtocol
from engine.kafka.client.config_providers import resolve_references
from engine.kafka.client.security import PLAINTEXT, Security, security_of
from engine.kafka.config.input_files import name_of, read_input
from engine.kafka.config.properties import parse_properties

if TYPE_CHECKING:
    from engine.kafka.client.jaas import LoginModule

_JAAS_SECTION = "KafkaClient"


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """What the properties say, typed where the client uses it. No secret is in its ``repr``."""

    client_id: str = "klamm"
    request_timeout_ms: int = 30_000
    entries: dict[str, str] = field(default_factory=dict, repr=False)
    security: Security = PLAINTEXT

    @property
    def security_protocol(self) -> SecurityProtocol:
        """That of the listeners to connect to."""
        return self.security.protocol


def load_client_properties(path: Path, jaas_file: Path | None = None) -> ClientProperties:
    """Read a client's properties. A login that they leave out is in ``jaas_file``, else in the one of ``KAFKA_OPTS``.

    Raises:
        NotFound: there is no such file.
        BadRequest: it is malformed, or a value is wrong.
    """
    return client_properties(_read_properties(path), name_of(path), jaas_file=jaas_file)


def load_properties(path: Path) -> dict[str, str]:
    """Read a properties file, with what its values refer to.

    Raises:
        NotFound: there is no such file.
        BadRequest: it is malformed, or a value refers to something that is not there.
    """
    try:
        return resolve_references(_read_properties(path), os.environ)
    except ConfigError as error:
        raise BadRequest(str(error), where=name_of(path)) from error


def _read_properties(path: Path) -> dict[str, str]:
    try:
        return parse_properties(read_input(path, "latin-1"))
    except FileNotFoundError as error:
        raise NotFound("no such file", where=str(path)) from error
    except ConfigError as error:
        raise BadRequest(f"not a properties file: {error}", where=name_of(path)) from error


def client_properties(
    entries: Mapping[str, str],
    where: str,
    environment: Mapping[str, str] = os.environ,
    *,
    jaas_file: Path | None = None,
) -> ClientProperties:
    """Return what the entries mean; ``where`` names their origin.

    A login that they leave out is in ``jaas_file``, else in the file that ``KAFKA_OPTS`` names.

    Raises:
        BadRequest: a value is wrong or missing, or refers to something that is not there.
    """
    try:
        resolved = resolve_references(entries, environment)
        security = security_of(resolved, _jaas_module(resolved, jaas_file, environment))
    except ConfigError as error:
        raise BadRequest(str(error), where=where) from error
    timeout = resolved.get("request.timeout.ms", "30000")
    if not timeout.isdigit():
        raise BadRequest(f"request.timeout.ms={timeout} is not a number", where=where)
    return ClientProperties(resolved.get("client.id", "klamm"), int(timeout), resolved, security)


def _jaas_module(
    entries: Mapping[str, str], jaas_file: Path | None, environment: Mapping[str, str]
) -> LoginModule | None:
    """Return the login module of the JAAS file, if a login needs one and the entries hold none."""
    if "SASL" not in entries.get("security.protocol", "").upper() or entries.get("sasl.jaas.config"):
        return None
    from engine.kafka.client.jaas import jaas_section

    modules = jaas_section(jaas_file, environment, _JAAS_SECTION)
    if modules is None:
        return None
    if not modules:
        named = jaas_file or "that KAFKA_OPTS names"
        raise ConfigError(f"the JAAS file has no section {_JAAS_SECTION}: {named}")
    return modules[0]
