"""A Kafka client's properties (``--command-config``): the keys that klamm's own client uses.

It keeps keys that it does not know, but ignores them, as Kafka's clients do; ``unknown_keys`` finds misspelt ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.common.errors import ConfigError
from engine.common.model import SecurityProtocol
from engine.kafka.client.config_providers import resolve_references
from engine.kafka.client.security import PLAINTEXT, Security, security_of
from engine.kafka.config.properties import parse_properties
from engine.kafka.zk.security import DIGEST_KEY, JAAS_KEY, TLS_KEYS
from engine.runtime.input_files import name_of, read_input

if TYPE_CHECKING:
    from engine.kafka.client.jaas import LoginModule


_JAAS_SECTION = "KafkaClient"
_BLANKS = "".join(map(chr, range(0x21)))
"""What Kafka's clients cut off both ends of a value. A properties file keeps blanks at the end of a line."""


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
        resolved = {key: value.strip(_BLANKS) for key, value in resolve_references(entries, environment).items()}
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


_NAMES = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset batch.size
    bootstrap.controllers bootstrap.servers buffer.memory check.crcs client.dns.lookup client.id client.rack
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level config.providers
    connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms enable.auto.commit enable.idempotence
    enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
    group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
    internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported isolation.level
    key.deserializer key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records max.request.size metadata.max.age.ms
    metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
    retries retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    security.protocol security.providers send.buffer.bytes session.timeout.ms share.acknowledgement.mode
    share.acquire.mode socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
    ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type transaction.timeout.ms transaction.two.phase.commit.enable transactional.id
    value.deserializer value.serializer
"""
_KNOWN = frozenset((*_NAMES.split(), *TLS_KEYS, "klamm.oauthbearer.token.command", DIGEST_KEY, JAAS_KEY))
"""The ConfigDefs of the admin client, producer and consumer of Kafka 3.9.0 and 4.2.0, Kafka's keys for ZooKeeper, and
klamm's own keys.
"""

_PREFIXES = ("config.providers", "metrics.context.")
"""Begin keys whose rest is the user's to choose."""


def unknown_keys(keys: Iterable[str]) -> dict[str, str | None]:
    """Return the keys that no client knows, each with the nearest that one knows, if any is near."""
    unknown = sorted(key for key in keys if key not in _KNOWN and not key.startswith(_PREFIXES))
    return {key: next(iter(get_close_matches(key, _KNOWN, n=1, cutoff=0.8)), None) for key in unknown}
