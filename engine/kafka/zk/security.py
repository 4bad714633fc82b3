"""How a session with ZooKeeper is protected: TLS, logins, and the access lists of what it creates.

The words are Kafka's: ``zookeeper.ssl.*`` and ``zookeeper.clientCnxnSocket`` among properties, the section ``Client``
of a JAAS file, and Java's system properties ``zookeeper.*``, which Kafka's scripts take from ``KAFKA_OPTS``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine.common.errors import ConfigError
from engine.kafka.config.values import java_trim
from engine.kafka.zk.operations import OPEN_ACL, PROTECTED_ACL, Acl

if TYPE_CHECKING:
    # Most sessions are plain: their programs start without what TLS and SASL import.
    from engine.kafka.client.jaas import LoginModule
    from engine.kafka.client.sasl.exchange import Exchange
    from engine.kafka.client.tls.context import TlsSettings

DIGEST_KEY = "klamm.zookeeper.digest"
"""A key of klamm's own: ``user:password`` of ZooKeeper's scheme ``digest``."""
JAAS_KEY = "klamm.zookeeper.sasl.jaas.config"
"""A key of klamm's own: the login module that Kafka takes from the section ``Client`` of a JAAS file."""
TLS_KEYS = {
    "zookeeper.ssl.client.enable": "zookeeper.client.secure",
    "zookeeper.clientCnxnSocket": "zookeeper.clientCnxnSocket",
    "zookeeper.ssl.keystore.location": "zookeeper.ssl.keyStore.location",
    "zookeeper.ssl.keystore.password": "zookeeper.ssl.keyStore.password",
    "zookeeper.ssl.keystore.type": "zookeeper.ssl.keyStore.type",
    "zookeeper.ssl.truststore.location": "zookeeper.ssl.trustStore.location",
    "zookeeper.ssl.truststore.password": "zookeeper.ssl.trustStore.password",
    "zookeeper.ssl.truststore.type": "zookeeper.ssl.trustStore.type",
    "zookeeper.ssl.protocol": "zookeeper.ssl.protocol",
    "zookeeper.ssl.enabled.protocols": "zookeeper.ssl.enabledProtocols",
    "zookeeper.ssl.cipher.suites": "zookeeper.ssl.ciphersuites",
    "zookeeper.ssl.endpoint.identification.algorithm": "zookeeper.ssl.hostnameVerification",
    "zookeeper.ssl.crl.enable": "zookeeper.ssl.crl",
    "zookeeper.ssl.ocsp.enable": "zookeeper.ssl.ocsp",
}
"""Kafka's keys, and the system property of ZooKeeper's client that each stands for (``ZkConfigs`` of Kafka 3.9)."""
_DIGEST_MODULES = (
    "org.apache.zookeeper.server.auth.DigestLoginModule",
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
)
"""ZooKeeper's client takes name and password from any of them, and DIGEST-MD5 is what it does with these."""
_KERBEROS_MODULES = ("com.sun.security.auth.module.Krb5LoginModule", "com.ibm.security.auth.module.Krb5LoginModule")


@dataclass(frozen=True, slots=True)
class ZkLogin:
    """A SASL login. The options hold passwords and stay out of ``repr``."""

    mechanism: str
    options: tuple[tuple[str, str], ...] = field(repr=False)
    service: str = "zookeeper"
    server_principal: str | None = None
    """Kerberos: the server's principal, if it is not the service at the server's host."""

    @property
    def identity(self) -> str:
        """The user and mechanism of the login, for people: ``kafka by DIGEST-MD5``."""
        options = dict(self.options)
        name = options.get("username") or options.get("principal")
        return f"{name} by {self.mechanism}" if name else self.mechanism

    def exchange(self, host: str) -> Exchange:
        """Return a new exchange with a server. It may wait for a ticket, so call it beside the loop.

        Raises:
            SaslError: no ticket can be obtained.
        """
        options = dict(self.options)
        if self.mechanism == "DIGEST-MD5":
            from engine.kafka.client.sasl.digest_md5 import digest_md5_exchange

            return digest_md5_exchange(options["username"], options["password"])
        from engine.kafka.client.sasl.kerberos import kerberos_exchange

        return kerberos_exchange(self.service, host, options, server_principal=self.server_principal)


@dataclass(frozen=True, slots=True)
class ZkSecurity:
    """The security of sessions. It can be compared and shown: no secret is in its ``repr``."""

    tls: TlsSettings | None = field(default=None, repr=False)
    """None: no TLS."""
    login: ZkLogin | None = None
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Pairs of scheme and credentials, such as ``("digest", "user:password")``."""
    protects: bool | None = None
    """Whether new znodes get access lists; None: if the session is authenticated, as Kafka's tools do."""

    @property
    def identities(self) -> tuple[str, ...]:
        """The identities of a session in ZooKeeper, without passwords: ``sasl:kafka``."""
        identities = [f"{scheme}:{credentials.partition(':')[0]}" for scheme, credentials in self.auth]
        if self.login is not None:
            options = dict(self.login.options)
            name = options.get("username") or options.get("principal")
            identities.append(f"sasl:{name}" if name else "sasl")
        if self.has_certificate:
            identities.append("x509")
        return tuple(identities)

    async def check(self) -> None:
        """Read the stores for TLS, so that connecting need not.

        Raises:
            ConfigError: one cannot be used.
        """
        if self.tls is not None:
            from engine.kafka.client.tls.context import client_context

            try:
                await asyncio.to_thread(client_context, self.tls)
            except ConfigError as error:
                raise ConfigError(in_zookeepers_words(str(error))) from None

    @property
    def has_certificate(self) -> bool:
        """Whether TLS shows ZooKeeper a certificate of this side, which ZooKeeper may take for a login."""
        return self.tls is not None and "ssl.keystore.location" in dict(self.tls.entries)

    @property
    def is_protecting(self) -> bool:
        """Whether new znodes get access lists."""
        return bool(self.identities) if self.protects is None else self.protects

    @property
    def default_acl(self) -> tuple[Acl, ...]:
        """The access list of a new znode that needs no other."""
        return PROTECTED_ACL if self.is_protecting else OPEN_ACL


OPEN = ZkSecurity()
"""Neither TLS nor a login."""


def zk_security(
    entries: Mapping[str, str], environment: Mapping[str, str], jaas_file: Path | None = None
) -> ZkSecurity:
    """Return what properties, Java's system properties and the section ``Client`` of a JAAS file say.

    Properties outweigh the system properties of ``KAFKA_OPTS``, as in Kafka, and ``jaas_file`` the file that these
    name. Stores are read when the first connection opens.

    Raises:
        ConfigError: a value is unknown, malformed or missing; the message holds no secret.
    """
    system = {}
    if environment.get("KAFKA_OPTS"):
        from engine.kafka.client.jaas import java_properties

        system = java_properties(environment)
    digest = entries.get(DIGEST_KEY, "")
    if digest and not digest.partition(":")[2]:
        raise ConfigError(f"{DIGEST_KEY} is not USER:PASSWORD")
    module = _login_module(entries, environment, system, jaas_file)
    login = None if module is None else _login(module, system)
    return ZkSecurity(_tls(entries, system), login, (("digest", digest),) if digest else ())


def _login_module(
    entries: Mapping[str, str], environment: Mapping[str, str], system: Mapping[str, str], jaas_file: Path | None
) -> LoginModule | None:
    jaas_config = entries.get(JAAS_KEY)
    if not jaas_config and jaas_file is None and not system:
        return None
    from engine.kafka.client.jaas import jaas_section, parse_jaas_config

    if jaas_config:
        return parse_jaas_config(jaas_config)
    if system.get("zookeeper.sasl.client", "true").lower() == "false":
        return None
    modules = jaas_section(jaas_file, environment, system.get("zookeeper.sasl.clientconfig") or "Client")
    return modules[0] if modules else None


def in_zookeepers_words(text: str) -> str:
    """Return a sentence about TLS to a broker as one about ZooKeeper, with the keys of its settings."""
    if "security.protocol" in text:
        return "zookeeper.ssl.client.enable=true needs ZooKeeper's port for TLS (secureClientPort)"
    return re.sub(r"(?<![\w.])ssl\.", "zookeeper.ssl.", text).replace("the broker", "ZooKeeper")


def _login(module: LoginModule, system: Mapping[str, str]) -> ZkLogin:
    options = dict(module.options)
    if module.class_name in _DIGEST_MODULES:
        missing = [name for name in ("username", "password") if name not in options]
        if missing:
            raise ConfigError(f"JAAS: the login module for ZooKeeper lacks {' and '.join(missing)}")
        return ZkLogin("DIGEST-MD5", tuple(sorted(options.items())))
    if module.class_name in _KERBEROS_MODULES:
        service = system.get("zookeeper.sasl.client.username", "zookeeper")
        return ZkLogin("GSSAPI", tuple(sorted(options.items())), service, system.get("zookeeper.server.principal"))
    known = ", ".join((*_DIGEST_MODULES, _KERBEROS_MODULES[0]))
    raise ConfigError(f"JAAS: the login module {module.class_name} is not one of those for ZooKeeper: {known}")


def _tls(entries: Mapping[str, str], system: Mapping[str, str]) -> TlsSettings | None:
    properties = {key: system[name] for key, name in TLS_KEYS.items() if name in system}
    if properties.get("zookeeper.ssl.endpoint.identification.algorithm", "").lower() in ("true", "false"):
        is_checked = properties["zookeeper.ssl.endpoint.identification.algorithm"].lower() == "true"
        properties["zookeeper.ssl.endpoint.identification.algorithm"] = "HTTPS" if is_checked else ""
    properties |= {key: java_trim(entries[key]) for key in TLS_KEYS if key in entries}
    if properties.get("zookeeper.ssl.client.enable", "false").strip().lower() != "true":
        return None
    for key in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if properties.get(key, "false").strip().lower() == "true":
            raise ConfigError(f"{key}=true: klamm cannot check whether a certificate was revoked")
    from engine.kafka.client.tls.context import tls_settings

    settings = {
        key.removeprefix("zookeeper."): value for key, value in properties.items() if value and "ssl.client" not in key
    }
    settings["ssl.endpoint.identification.algorithm"] = properties.get(
        "zookeeper.ssl.endpoint.identification.algorithm", "HTTPS"
    )
    if protocol := settings.pop("ssl.protocol", None):
        settings.setdefault("ssl.enabled.protocols", protocol)
    for store in ("ssl.keystore", "ssl.truststore"):
        if f"{store}.location" in settings:
            settings.setdefault(f"{store}.type", _type_by_name(settings[f"{store}.location"]))
    if password := settings.get("ssl.keystore.password"):
        settings["ssl.key.password"] = password
    return tls_settings(settings)


def _type_by_name(path: str) -> str:
    """Return a store's type as ZooKeeper finds it out: from the end of the file's name."""
    return {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}.get(Path(path).suffix.lower(), "JKS")
