"""Which cluster a tool talks to, and which side of it: the rules for options, environment, local cluster and profiles.

This module opens nothing. The order is: what the caller named, the environment, the cluster that ``klamm local up``
started in this folder, the default profile. The first of these that names anything decides. klamm never mixes two
sources: an address of one cluster with the ZooKeeper of another would send a change to the wrong cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from engine.admin.cluster.client_properties import (
    ClientProperties,
    client_properties,
    load_client_properties,
    load_properties,
)
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.profiles import Colour, Profile, load_profiles, profiles_path
from engine.admin.cluster.remedies import Give, Operation, Parameter, Phrase
from engine.common.errors import ConfigError
from engine.common.model import SecurityProtocol, address_text
from engine.kafka.zk.security import OPEN, TLS_KEYS, ZkSecurity, zk_security
from engine.runtime.input_files import STDIN, name_of

LOCAL_CLUSTER_FILE = Path(".klamm") / "local.json"

_THREE_WAYS = Phrase(
    "name one with ", Give(Parameter.ZOOKEEPER), " or ", Give(Parameter.BOOTSTRAP_SERVERS),
    ", choose a profile with ", Give(Parameter.CLUSTER),
    ", or start one here: ", Operation.START_LOCAL_CLUSTER,
)  # fmt: skip


class NoClusterNamed(BadRequest):
    """Nothing says which cluster is meant."""


class Side(StrEnum):
    """Where facts are read: the znodes, or the brokers."""

    ZOOKEEPER = "zookeeper"
    WIRE = "wire"


class Source(StrEnum):
    """Where facts about a cluster come from: a file, its znodes, or its brokers."""

    SNAPSHOT = "snapshot"
    ZOOKEEPER = "zookeeper"
    WIRE = "wire"


class Origin(StrEnum):
    """What named the cluster."""

    OPTIONS = "options"
    ENVIRONMENT = "environment"
    LOCAL = "local"
    PROFILE = "profile"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Naming:
    """What a caller said about its cluster, word for word."""

    zookeeper: str | None = None
    bootstrap_servers: str | None = None
    cluster: str | None = None
    snapshot: str | None = None
    command_config: str | None = None
    via: Side | None = None
    jaas_config: str | None = None
    zk_tls_config: str | None = None
    may_jaas_idle: bool = False
    """Several clusters share the JAAS file: not every one has to use it."""

    @property
    def jaas_file(self) -> Path | None:
        return Path(self.jaas_config) if self.jaas_config else None

    @property
    def names_cluster(self) -> bool:
        return bool(self.zookeeper or self.bootstrap_servers or self.cluster or self.snapshot)


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """A cluster that was found: its addresses, and the side that reads and changes go to."""

    name: str
    origin: Origin
    zookeeper: str | None = None
    bootstrap: tuple[tuple[str, int], ...] = ()
    named_protocols: frozenset[SecurityProtocol] = frozenset()
    """What stands before the addresses, as in ``SASL_SSL://``."""
    snapshot: Path | None = None
    client_properties: ClientProperties = field(default_factory=ClientProperties)
    zookeeper_security: ZkSecurity = OPEN
    jaas_file: Path | None = None
    command_config: str | None = None
    zk_tls_config: str | None = None
    """The files that were named, for other clusters of the same run and for commands that a person copies."""
    via: Side | None = None
    is_read_only: bool = False
    checkpoints: tuple[str, ...] = ()
    event_logs: tuple[str, ...] = ()
    """Where Spark's queries leave their traces, as the profile says."""
    logs: tuple[str, ...] = ()
    """Where this machine can read the brokers' state-change logs."""
    metrics: str | None = field(default=None, repr=False)
    """Where each broker serves its metrics, as the profile says: a URL with ``{host}`` or ``{id}``."""
    label: str = ""
    colour: Colour | None = None
    """Helps a person distinguish it from other clusters."""

    @property
    def title(self) -> str:
        """Name and address, for the question before a change: ``profile prod (kafka1:9092)``."""
        address = ",".join(address_text(host, port) for host, port in self.bootstrap) or self.zookeeper
        match self.origin:
            case Origin.PROFILE:
                return f"profile {self.name} ({address})"
            case Origin.LOCAL:
                return f"the {self.name} ({address})"
        return self.name

    @property
    def source(self) -> Source:
        """Cluster state comes from the snapshot if one is named, else from ``reads_from``."""
        return Source.SNAPSHOT if self.snapshot is not None else Source(self.reads_from)

    @property
    def may_ask_zookeeper(self) -> bool:
        """ZooKeeper is named, and the user did not ask for brokers only."""
        return self.zookeeper is not None and self.via is not Side.WIRE

    @property
    def may_ask_brokers(self) -> bool:
        """The user did not ask for ZooKeeper only; it knows brokers even if none are named."""
        return self.snapshot is None and self.via is not Side.ZOOKEEPER

    @property
    def reads_from(self) -> Side:
        """Cluster state comes from ZooKeeper if it is known."""
        return self.via or (Side.ZOOKEEPER if self.zookeeper else Side.WIRE)

    @property
    def changes_by(self) -> Side:
        """Changes go over the wire if brokers are named."""
        return self.via or (Side.WIRE if self.bootstrap else Side.ZOOKEEPER)

    @property
    def may_be_changed(self) -> bool:
        """Whether it is a live cluster, of a profile that allows changes."""
        return self.snapshot is None and not self.is_read_only


def resolve_target(naming: Naming, environment: Mapping[str, str], folder: Path) -> ClusterTarget:
    """Find the cluster that ``naming``, the environment or ``folder`` mean.

    Raises:
        NoClusterNamed: nothing names a cluster.
        BadRequest: options contradict each other, or a file or address is not well-formed.
        NotFound: a profile or file that was named does not exist.
    """
    target = _choose(naming, environment, folder)
    config, jaas_file = naming.command_config, naming.jaas_file or target.jaas_file
    if not config and target.origin in (Origin.OPTIONS, Origin.ENVIRONMENT):
        # A profile and a local cluster have properties of their own: another cluster's password must not go there.
        config = environment.get("KLAMM_COMMAND_CONFIG")
    if config:
        target = replace(target, client_properties=load_client_properties(Path(config), jaas_file))
    _check_named_protocols(target)
    if target.zookeeper is not None and target.origin is not Origin.LOCAL:
        target = replace(target, zookeeper_security=_zookeeper_security(naming, target, jaas_file, environment))
    is_used = target.client_properties.security.sasl or target.zookeeper_security.login
    if naming.jaas_config and not is_used and not naming.may_jaas_idle:
        message = Phrase(Parameter.JAAS_CONFIG, " holds a login, but neither client properties nor ZooKeeper use it")
        hint = Phrase("set security.protocol=SASL_SSL, or SASL_PLAINTEXT, in ", Give(Parameter.COMMAND_CONFIG))
        raise BadRequest(message, hint=hint)
    # Not a profile's own: naming the profile again brings that.
    target = replace(
        target, jaas_file=naming.jaas_file, command_config=config or None, zk_tls_config=naming.zk_tls_config
    )
    if naming.via is not None:
        target = _forced(target, naming.via)
    return target


def _zookeeper_security(
    naming: Naming, target: ClusterTarget, jaas_file: Path | None, environment: Mapping[str, str]
) -> ZkSecurity:
    """Return how sessions with ZooKeeper are protected, by the client's properties and a file for TLS only."""
    entries = dict(target.client_properties.entries)
    if naming.zk_tls_config:
        path = Path(naming.zk_tls_config)
        properties = load_properties(path)
        entries |= {key: value for key, value in properties.items() if key in TLS_KEYS}
    try:
        return zk_security(entries, environment, jaas_file)
    except ConfigError as error:
        raise BadRequest(str(error), where=naming.zk_tls_config) from error


def parse_addresses(text: str, default_port: int = 9092) -> tuple[tuple[str, int], ...]:
    """Return host and port of ``HOST:PORT,…``; IPv6 hosts are in brackets. ``PLAINTEXT://`` and its like may lead.

    Raises:
        BadRequest: a part is not an address.
    """
    addresses = []
    for part in text.split(","):
        scheme, slashes, rest = part.strip().partition("://")
        if slashes:
            part = rest
            if scheme.upper() not in SecurityProtocol.__members__:
                known = ", ".join(f"{name}://" for name in SecurityProtocol.__members__)
                raise BadRequest(f"not a Kafka listener: {scheme}://{rest}", hint=f"write HOST:PORT, or one of {known}")
        host, colon, port = part.strip().rpartition(":")
        if not colon or (host.startswith("[") and not host.endswith("]")):
            host, port = part.strip(), str(default_port)
        host = host.removeprefix("[").removesuffix("]")
        if not _is_host(host) or not port.isdigit() or not 0 < int(port) < 65536:
            raise BadRequest(f"not an address: {part!r}", hint="write HOST:PORT, several with commas between them")
        addresses.append((host, int(port)))
    return tuple(addresses)


def _protocols_before(addresses: str) -> frozenset[SecurityProtocol]:
    schemes = (part.strip().partition("://") for part in addresses.split(","))
    return frozenset(SecurityProtocol[scheme.upper()] for scheme, slashes, _ in schemes if slashes)


def _check_named_protocols(target: ClusterTarget) -> None:
    """Refuse to speak in the clear, or without a login, where an address promises more; Kafka's clients ignore it."""
    protocol = target.client_properties.security_protocol
    for named in sorted(target.named_protocols):
        promised = {*named.name.split("_")} - {SecurityProtocol.PLAINTEXT.name}
        if not promised.issubset(protocol.name.split("_")):
            message = f"the address says {named.name}://, but security.protocol is {protocol.name}"
            hint = Phrase(f"set security.protocol={named.name} in ", Give(Parameter.COMMAND_CONFIG))
            raise BadRequest(message, where=target.title, hint=hint)


def _is_host(text: str) -> bool:
    """Whether this may be a name or an address: ``a..b`` is neither."""
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def _choose(naming: Naming, environment: Mapping[str, str], folder: Path) -> ClusterTarget:
    if naming.names_cluster:
        return _named(naming, Origin.OPTIONS, environment)
    from_environment = Naming(
        zookeeper=environment.get("KLAMM_ZOOKEEPER"),
        bootstrap_servers=environment.get("KLAMM_BOOTSTRAP_SERVER"),
        cluster=environment.get("KLAMM_CLUSTER"),
        snapshot=environment.get("KLAMM_SNAPSHOT"),
    )
    if from_environment.names_cluster:
        return _named(from_environment, Origin.ENVIRONMENT, environment)
    local = folder / LOCAL_CLUSTER_FILE
    if local.exists():
        return _local(local)
    profile = load_profiles(profiles_path(environment)).default
    if profile is not None:
        return _from_profile(profile, naming.jaas_file)
    raise NoClusterNamed("no cluster is named", hint=_THREE_WAYS)


def _named(naming: Naming, origin: Origin, environment: Mapping[str, str]) -> ClusterTarget:
    ways = [naming.cluster, naming.snapshot, naming.zookeeper or naming.bootstrap_servers]
    if sum(bool(way) for way in ways) > 1:
        hint = Phrase(
            "give ", Parameter.CLUSTER, ", or ", Parameter.SNAPSHOT,
            ", or ", Parameter.ZOOKEEPER, " and ", Parameter.BOOTSTRAP_SERVERS,
        )  # fmt: skip
        raise BadRequest("more than one cluster is named", hint=hint)
    if naming.cluster:
        return _from_profile(load_profiles(profiles_path(environment)).named(naming.cluster), naming.jaas_file)
    if naming.snapshot:
        path = Path(naming.snapshot)
        if path != STDIN and not path.is_file():
            raise NotFound("no such snapshot file", where=str(path))
        return ClusterTarget(name_of(path) if path == STDIN else path.name, Origin.SNAPSHOT, snapshot=path)
    return _at(naming.zookeeper, naming.bootstrap_servers, name=None, origin=origin)


def _at(zookeeper: str | None, bootstrap: str | None, *, name: str | None, origin: Origin) -> ClusterTarget:
    if zookeeper:
        parse_addresses(zookeeper.partition("/")[0], default_port=2181)
    addresses = parse_addresses(bootstrap) if bootstrap else ()
    return ClusterTarget(
        name or zookeeper or bootstrap or "",
        origin,
        zookeeper=zookeeper or None,
        bootstrap=addresses,
        named_protocols=_protocols_before(bootstrap or ""),
    )


def _from_profile(profile: Profile, jaas_file: Path | None) -> ClusterTarget:
    target = _at(profile.zookeeper, profile.bootstrap_servers, name=profile.name, origin=Origin.PROFILE)
    jaas_file = jaas_file or (Path(profile.jaas_config) if profile.jaas_config else None)
    return replace(
        target,
        client_properties=_properties_of(profile, jaas_file),
        jaas_file=jaas_file,
        is_read_only=profile.read_only,
        checkpoints=profile.checkpoints,
        event_logs=profile.event_logs,
        logs=profile.logs,
        metrics=profile.metrics,
        label=profile.label or "",
        colour=profile.colour,
    )


def _properties_of(profile: Profile, jaas_file: Path | None) -> ClientProperties:
    if profile.properties:
        where = f"properties of the profile {profile.name}"
        return client_properties(profile.properties, where, jaas_file=jaas_file)
    if profile.command_config:
        return load_client_properties(Path(profile.command_config), jaas_file)
    return ClientProperties()


def _local(path: Path) -> ClusterTarget:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        zookeeper, bootstrap = document["zookeeper"], document["bootstrap_servers"]
    except (ValueError, KeyError, TypeError) as error:
        hint = Phrase("remove it, then: ", Operation.START_LOCAL_CLUSTER)
        raise BadRequest("not the record of a local cluster", where=str(path), hint=hint) from error
    if isinstance(bootstrap, list):
        bootstrap = ",".join(bootstrap)
    target = _at(zookeeper, bootstrap, name=f"local cluster in {path.parent}", origin=Origin.LOCAL)
    command_config = document.get("command_config")
    if command_config is None:
        return target
    return replace(target, client_properties=load_client_properties(Path(command_config)))


def _forced(target: ClusterTarget, via: Side) -> ClusterTarget:
    if target.snapshot is not None:
        raise BadRequest("a snapshot is read from its file", hint=Phrase("leave out ", Parameter.VIA))
    if via is Side.ZOOKEEPER and target.zookeeper is None:
        message = Phrase(Give(Parameter.VIA, via.value), " needs a ZooKeeper")
        raise BadRequest(message, hint=Phrase("give ", Give(Parameter.ZOOKEEPER), " too"))
    return replace(target, via=via)
