"""A broker's listeners: parsing their texts and Kafka's rules about them. Nothing here opens a socket.

Source: KafkaConfig, CoreUtils and SocketServerConfigs of Kafka 3.9 (KIP-103, KIP-291, KIP-797).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.common.errors import ConfigError
from engine.common.model import Endpoint, SecurityProtocol
from engine.kafka.config.values import java_integer, require

_LISTENER = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_IPV4 = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}")
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")
_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The listeners of a broker, checked. A host of "" is every address (`listeners`) or the machine's own name
    (`advertised_listeners`); port 0 is any free one.
    """

    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]
    security_protocols: Mapping[str, SecurityProtocol]
    inter_broker_listener_name: str
    inter_broker_security_protocol: SecurityProtocol
    control_plane_listener_name: str | None


def parse_csv(text: str | None) -> tuple[str, ...]:
    """Split a text at its commas; drop blanks around them and empty entries."""
    return tuple(entry.strip() for entry in (text or "").split(",") if entry.strip())


def parse_csv_map(name: str, text: str) -> dict[str, str]:
    """Read ``key:value,key:value``; the last colon of an entry counts, so that a key may be an IPv6 address.

    Raises:
        ConfigError: an entry has no colon.
    """
    entries: dict[str, str] = {}
    for entry in parse_csv(text):
        key, colon, value = entry.rpartition(":")
        if not colon:
            raise ConfigError(f"Error parsing configuration property '{name}': '{entry}' has no colon", key=name)
        entries[key.strip()] = value.strip()
    return entries


def parse_security_protocols(text: str) -> dict[str, SecurityProtocol]:
    """Read ``listener.security.protocol.map``. Listener names are written in capitals."""
    name = "listener.security.protocol.map"
    return {
        listener.upper(): _security_protocol(protocol, name) for listener, protocol in parse_csv_map(name, text).items()
    }


def parse_listeners(
    name: str, text: str, security_protocols: Mapping[str, SecurityProtocol], *, distinct_ports: bool
) -> tuple[Endpoint, ...]:
    """Read ``listeners`` or ``advertised.listeners``; ``name`` is the setting that errors name.

    Raises:
        ConfigError: the text is malformed, a name has no protocol, or names or ports repeat.
    """
    try:
        endpoints = tuple(_endpoint(entry, security_protocols) for entry in parse_csv(text))
    except ValueError as error:
        raise ConfigError(f"Error creating broker listeners from '{text}': {error}", key=name) from error
    names = Counter(endpoint.listener_name for endpoint in endpoints)
    require(len(names) == len(endpoints), f"Each listener must have a different name, listeners: {text}", key=name)
    if distinct_ports:
        _check_ports(name, endpoints, text)
    return endpoints


def resolve_listeners(
    text: str,
    advertised_text: str | None,
    protocol_map_text: str,
    *,
    inter_broker_name: str | None,
    inter_broker_protocol: str,
    is_inter_broker_protocol_set: bool,
    control_plane_name: str | None,
) -> ListenerSettings:
    """Return a broker's listeners.

    Raises:
        ConfigError: Kafka would refuse to start with them; the text says why.
    """
    protocols = parse_security_protocols(protocol_map_text)
    listeners = parse_listeners("listeners", text, protocols, distinct_ports=True)
    advertised = listeners
    if advertised_text is not None:
        advertised = parse_listeners("advertised.listeners", advertised_text, protocols, distinct_ports=False)
    if inter_broker_name is not None and is_inter_broker_protocol_set:
        raise ConfigError(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
            key="inter.broker.listener.name",
        )
    if inter_broker_name is None:
        protocol = _security_protocol(inter_broker_protocol, "security.inter.broker.protocol")
        name = protocol.name
    else:
        name = inter_broker_name.upper()
        protocol = _protocol_of(name, protocols, "inter.broker.listener.name")
    control_plane = None if control_plane_name is None else control_plane_name.upper()
    settings = ListenerSettings(listeners, advertised, protocols, name, protocol, control_plane)
    _check_names(settings)
    return settings


def parse_connection_overrides(text: str) -> dict[str, int]:
    """Read ``max.connections.per.ip.overrides``: connections allowed per host."""
    name = "max.connections.per.ip.overrides"
    overrides: dict[str, int] = {}
    for host, given in parse_csv_map(name, text).items():
        limit = java_integer(given)
        if limit is None:
            raise ConfigError(f"Error parsing configuration property '{name}': '{given}' is not a number", key=name)
        overrides[host] = limit
    invalid = [host for host in overrides if not _HOST.fullmatch(host)]
    if invalid:
        raise ConfigError(f"{name} contains invalid addresses : {','.join(invalid)}", key=name)
    return overrides


def _endpoint(entry: str, security_protocols: Mapping[str, SecurityProtocol]) -> Endpoint:
    match = _LISTENER.fullmatch(entry)
    if match is None:
        raise ValueError(f"Unable to parse {entry} to a broker endpoint")
    name, host, port = match[1].upper(), match[2], int(match[3])
    if name not in security_protocols:
        raise ValueError(f"No security protocol defined for listener {name}")
    if not 0 <= port <= _PORT_MAX:
        raise ValueError(f"Port {port} of listener {name} must be from 0 to {_PORT_MAX}")
    return Endpoint(host, port, name, security_protocols[name])


def _check_ports(name: str, endpoints: Iterable[Endpoint], text: str) -> None:
    by_port: dict[int, list[str]] = {}
    for endpoint in endpoints:
        if endpoint.port != 0:
            by_port.setdefault(endpoint.port, []).append(endpoint.host)
    for port, hosts in by_port.items():
        if len(hosts) > 1:
            _check_shared_port(name, port, hosts, text)


def _check_shared_port(name: str, port: int, hosts: list[str], text: str) -> None:
    addresses = [host for host in hosts if _family(host)]
    has_other_hosts = len(hosts) > len(addresses)
    require(len(hosts) - len(addresses) <= 1, f"Each listener must have a different port, listeners: {text}", key=name)
    if len(addresses) not in (0, 2):
        raise ConfigError(
            "Each listener must have a different port unless exactly one listener has an IPv4 address and the "
            f"other IPv6 address, listeners: {text}, port: {port}",
            key=name,
        )
    if len(addresses) == 2:
        message = (
            "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
            f"listeners: {text}, port: {port}"
        )
        require(_family(addresses[0]) != _family(addresses[1]), message, key=name)
        if has_other_hosts:
            raise ConfigError(message, key=name)


def _family(host: str) -> int:
    if _IPV4.fullmatch(host) and all(int(part) <= 255 for part in host.split(".")):
        return 4
    return 6 if ":" in host else 0


def _check_names(settings: ListenerSettings) -> None:
    names = [endpoint.listener_name for endpoint in settings.listeners]
    advertised = [endpoint.listener_name for endpoint in settings.advertised_listeners]
    valid = ",".join(advertised)
    require(bool(advertised), "There must be at least one broker advertised listener.", key="advertised.listeners")
    require(
        settings.inter_broker_listener_name in advertised,
        "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
        f"The valid options based on currently configured listeners are {valid}",
        key="inter.broker.listener.name",
    )
    require(
        set(advertised) <= set(names),
        "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
        f"Found {valid}. The valid options based on the current configuration are {','.join(names)}",
        key="advertised.listeners",
    )
    require(
        all(endpoint.host != "0.0.0.0" for endpoint in settings.advertised_listeners),
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
        key="advertised.listeners",
    )
    if settings.control_plane_listener_name is not None:
        _check_control_plane(settings.control_plane_listener_name, settings, valid)


def _check_control_plane(name: str, settings: ListenerSettings, valid: str) -> None:
    if name not in settings.security_protocols:
        raise ConfigError(
            f"Listener with {name} defined in control.plane.listener.name not found in listener.security.protocol.map.",
            key="control.plane.listener.name",
        )
    require(
        any(endpoint.listener_name == name for endpoint in settings.advertised_listeners),
        "control.plane.listener.name must be a listener name defined in advertised.listeners. "
        f"The valid options based on currently configured listeners are {valid}",
        key="control.plane.listener.name",
    )
    require(
        name != settings.inter_broker_listener_name,
        "control.plane.listener.name, when defined, should have a different value from the inter broker listener "
        f"name. Currently they both have the value {name}",
        key="control.plane.listener.name",
    )


def _protocol_of(name: str, protocols: Mapping[str, SecurityProtocol], setting: str) -> SecurityProtocol:
    if name not in protocols:
        raise ConfigError(
            f"Listener with name {name} defined in {setting} not found in listener.security.protocol.map.", key=setting
        )
    return protocols[name]


def _security_protocol(text: str, setting: str) -> SecurityProtocol:
    try:
        return SecurityProtocol[text.upper()]
    except KeyError as error:
        raise ConfigError(f"Invalid security protocol `{text}` defined in {setting}", key=setting) from error
