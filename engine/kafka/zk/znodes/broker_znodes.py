"""Znodes of brokers: ``/brokers/ids``, ``/brokers/ids/<id>``, ``/brokers/seqid``. Codecs only.

Versions of a registration, by the writer's inter-broker protocol: 1 host and port (0.8), 2 endpoints (0.9),
3 rack (0.10.0), 4 security protocols of the listeners (0.10.1), 5 supported features (2.7).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.common.model import BrokerInfo, Endpoint, SecurityProtocol
from engine.kafka.zk.errors import ZnodeFormatError
from engine.kafka.zk.znodes.fields import Fields, encode_json

_ENDPOINT = re.compile(r"(?P<listener>[^:/]+)://(?:\[(?P<ipv6>[^\]]*)\]|(?P<host>[^\[\]]*)):(?P<port>-?\d+)")


class BrokerIdsZNode:
    """Parent of the live brokers' registrations; the controller watches its children."""

    path: Final = "/brokers/ids"


class BrokerSequenceIdZNode:
    """Its version counts the generated broker ids; it has no data."""

    path: Final = "/brokers/seqid"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker registers about itself.

    Attributes:
        json_version: the version of its format.
        timestamp_ms: when it was written.
        features: the minimum and maximum version of each supported feature.
    """

    broker: BrokerInfo
    timestamp_ms: int
    json_version: int = 5
    jmx_port: int = -1
    features: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class BrokerIdZNode:
    """A live broker's registration: ephemeral, so it goes with the broker's session. Its czxid is the broker epoch."""

    @staticmethod
    def path(broker_id: int) -> str:
        return f"{BrokerIdsZNode.path}/{broker_id}"

    @staticmethod
    def encode(registration: BrokerRegistration) -> bytes:
        """Return the JSON in Kafka's key order; host and port, for old clients, are those of the first plain
        listener.
        """
        broker, version = registration.broker, registration.json_version
        plain = broker.endpoint_for(SecurityProtocol.PLAINTEXT)
        values: dict[str, Any] = {}
        if version >= 5:
            values["features"] = {name: dict(versions) for name, versions in registration.features.items()}
        if version >= 4:
            protocols = {e.listener_name: e.security_protocol.name for e in broker.endpoints}
            values["listener_security_protocol_map"] = protocols
        if version >= 2:
            values["endpoints"] = [str(endpoint) for endpoint in broker.endpoints]
        if version >= 3 and broker.rack is not None:
            values["rack"] = broker.rack
        values |= {
            "jmx_port": registration.jmx_port,
            "port": -1 if plain is None else plain.port,
            "host": None if plain is None else plain.host,
            "version": version,
            "timestamp": str(registration.timestamp_ms),
        }
        return encode_json(values)

    @staticmethod
    def decode(broker_id: int, data: bytes, broker_epoch: int = -1) -> BrokerRegistration:
        """Read a registration of any version from 1 on.

        Args:
            broker_epoch: the znode's czxid.

        Raises:
            ZnodeFormatError: it has version 0 or bad content.
        """
        fields = Fields.parse(BrokerIdZNode.path(broker_id), data)
        version = fields.integer("version")
        if version < 1:
            raise ZnodeFormatError(fields.path, f"version {version} is not supported")
        endpoints = _only_endpoint(fields) if version == 1 else _endpoints(fields)
        broker = BrokerInfo(broker_id, endpoints, fields.optional_text("rack"), broker_epoch)
        return BrokerRegistration(
            broker,
            timestamp_ms=fields.number_in_text("timestamp") if "timestamp" in fields else -1,
            json_version=version,
            jmx_port=fields.integer("jmx_port") if "jmx_port" in fields else -1,
            features=_features(fields),
        )


def _only_endpoint(fields: Fields) -> tuple[Endpoint, ...]:
    return (Endpoint.of_protocol(fields.text("host"), fields.integer("port"), SecurityProtocol.PLAINTEXT),)


def _endpoints(fields: Fields) -> tuple[Endpoint, ...]:
    if "listener_security_protocol_map" in fields:
        protocols = {name.upper(): value for name, value in fields.text_map("listener_security_protocol_map").items()}
    else:
        # Before version 4, a listener's name is its security protocol.
        protocols = {protocol.name: protocol.name for protocol in SecurityProtocol}
    return tuple(_endpoint(fields.path, text, protocols) for text in fields.texts("endpoints"))


def _endpoint(path: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise ZnodeFormatError(path, f"not an endpoint: {text!r}")
    listener_name = match["listener"].upper()
    protocol = protocols.get(listener_name)
    if protocol is None or protocol.upper() not in SecurityProtocol.__members__:
        raise ZnodeFormatError(path, f"no known security protocol for listener {listener_name}: {protocol!r}")
    host = match["ipv6"] if match["ipv6"] is not None else match["host"]
    return Endpoint(host, int(match["port"]), listener_name, SecurityProtocol[protocol.upper()])


def _features(fields: Fields) -> dict[str, dict[str, int]]:
    features = fields.optional_child("features")
    versions = {name: features.child(name) for name in features.values}
    return {name: {key: feature.integer(key) for key in feature.values} for name, feature in versions.items()}
