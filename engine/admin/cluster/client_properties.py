"""A Kafka client's properties file (``--command-config``): the keys that klamm's own client honours.

Keys it does not know are kept but mean nothing, as in Kafka's clients. This refuses a security protocol that the client
cannot speak before anything connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Parameter, Phrase
from engine.common.errors import ConfigError
from engine.common.model import SecurityProtocol
from engine.kafka.config.input_files import name_of, read_input
from engine.kafka.config.properties import parse_properties

_SPOKEN = (SecurityProtocol.PLAINTEXT,)
"""The security protocols that klamm's client speaks."""


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """What the file says, typed where the client uses it."""

    client_id: str = "klamm"
    request_timeout_ms: int = 30_000
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """Decides which of a broker's listeners are asked."""
    entries: dict[str, str] = field(default_factory=dict)


def load_client_properties(path: Path) -> ClientProperties:
    """Read a properties file.

    Raises:
        NotFound: there is no such file.
        BadRequest: it is malformed, a value is wrong, or it asks for a security protocol other than PLAINTEXT.
    """
    try:
        entries = parse_properties(read_input(path, "latin-1"))
    except FileNotFoundError as error:
        raise NotFound("no such file", where=str(path)) from error
    except ConfigError as error:
        raise BadRequest(f"not a properties file: {error}", where=name_of(path)) from error
    return client_properties(entries, name_of(path))


def client_properties(entries: Mapping[str, str], where: str) -> ClientProperties:
    """Return what the entries mean; ``where`` names their origin.

    Raises:
        BadRequest: a value is wrong, or they ask for a security protocol other than PLAINTEXT.
    """
    name = entries.get("security.protocol", SecurityProtocol.PLAINTEXT.name).upper()
    protocol = next((spoken for spoken in _SPOKEN if spoken.name == name), None)
    if protocol is None:
        raise BadRequest(
            f"security.protocol={name} is not supported yet",
            where=where,
            hint=Phrase("use a PLAINTEXT listener, or ", Parameter.ZOOKEEPER, " for what the znodes hold"),
        )
    timeout = entries.get("request.timeout.ms", "30000")
    if not timeout.isdigit():
        raise BadRequest(f"request.timeout.ms={timeout} is not a number", where=where)
    return ClientProperties(entries.get("client.id", "klamm"), int(timeout), protocol, dict(entries))
