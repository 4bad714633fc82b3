"""A Kafka client's properties (``--command-config``): the keys that klamm's own client honours.

Keys it does not know are kept but mean nothing, as in Kafka's clients; ``client_keys`` finds typing errors.
"""

from __future__ import annotations

import os
import shlex
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

_JAAS_OPTION = "-Djava.security.auth.login.config="
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
    """Read a properties file. A login that they leave out is in ``jaas_file``, else in the one of ``KAFKA_OPTS``.

    Raises:
        NotFound: there is no such file.
        BadRequest: it is malformed, or a value is wrong.
    """
    try:
        entries = parse_properties(read_input(path, "latin-1"))
    except FileNotFoundError as error:
        raise NotFound("no such file", where=str(path)) from error
    except ConfigError as error:
        raise BadRequest(f"not a properties file: {error}", where=name_of(path)) from error
    return client_properties(entries, name_of(path), jaas_file=jaas_file)


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
    path, origin = (jaas_file, "") if jaas_file is not None else (_jaas_file_of(environment), "that KAFKA_OPTS names ")
    if path is None:
        return None
    from engine.kafka.client.jaas import parse_jaas_file

    try:
        modules = parse_jaas_file(path.read_text(encoding="utf-8")).get(_JAAS_SECTION, [])
    except OSError as error:
        raise ConfigError(f"the JAAS file {origin}cannot be read ({error.strerror}): {path}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the JAAS file {origin}is not text: {path}") from None
    except ConfigError as error:
        raise ConfigError(f"{error}: {path}") from None
    if not modules:
        raise ConfigError(f"the JAAS file has no section {_JAAS_SECTION}: {path}")
    return modules[0]


def _jaas_file_of(environment: Mapping[str, str]) -> Path | None:
    """Return the JAAS file that ``KAFKA_OPTS`` names; as in Java, the last one counts."""
    options = shlex.split(environment.get("KAFKA_OPTS", ""))
    names = [one.removeprefix(_JAAS_OPTION) for one in options if one.startswith(_JAAS_OPTION)]
    return Path(names[-1].removeprefix("file:")) if names else None
