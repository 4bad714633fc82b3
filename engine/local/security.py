"""A secured local cluster: its CA and certificates, its users, and the files with which clients log in.

Everything is made again at each start, and removed at the end: no secret outlives the cluster.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from engine.common.errors import OperationError
from engine.kafka.client.tls.store_formats import EXTRA
from engine.kafka.config.properties import format_properties
from engine.kafka.formats.scram_credential import HASHES, ITERATIONS_MIN, ScramCredential
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.local.local_broker import write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    Signed = tuple[x509.Certificate, EllipticCurvePrivateKey]

MECHANISMS = ("PLAIN", *HASHES)
ADMIN = "admin"
USERS = (ADMIN, "alice", "bob")
"""``admin`` may do everything; with ACLs, the others may do what rules allow them."""
BROKER = "broker"
"""The user as which brokers log in at each other."""

_FOLDER = "security"
_VALID_DAYS = 365
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(HASHES, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}


def properties_path(directory: Path, user: str = ADMIN) -> Path:
    """Return the file with which Java's clients and klamm's own connect as a user (``--command-config``)."""
    return directory / f"{'client' if user == ADMIN else user}.properties"


def librdkafka_path(directory: Path, user: str = ADMIN) -> Path:
    """Return the file with which librdkafka's clients connect as a user (``kcat -F``)."""
    return directory / f"{'client' if user == ADMIN else user}.kcat"


class LocalSecurity:
    """How one cluster is secured.

    Args:
        directory: the cluster's folder.
        host: where the brokers listen; their certificate is for this name or address, and for ``localhost``.
        mechanism: how users log in over TLS (``MECHANISMS``); None: by certificates instead of passwords.
        has_acls: brokers ask Kafka's AclAuthorizer.
    """

    def __init__(self, directory: Path, host: str, mechanism: str | None, *, has_acls: bool) -> None:
        self.protocol = "SSL" if mechanism is None else "SASL_SSL"
        self._directory, self._host, self._mechanism, self._has_acls = directory, host, mechanism, has_acls
        self._passwords = {user: secrets.token_urlsafe(12) for user in (*USERS, BROKER)}

    @property
    def _stores(self) -> Path:
        return self._directory / _FOLDER

    def broker_settings(self) -> dict[str, str]:
        """Return the settings of every broker, all but its listeners."""
        settings = self._trust() | self._key(BROKER) | {"security.inter.broker.protocol": self.protocol}
        if self._mechanism is None:
            settings["ssl.client.auth"] = "required"
            settings["ssl.principal.mapping.rules"] = "RULE:^CN=([^,]+)$/$1/,DEFAULT"
        else:
            settings["sasl.enabled.mechanisms"] = self._mechanism
            settings["sasl.mechanism.inter.broker.protocol"] = self._mechanism
            is_plain = self._mechanism == "PLAIN"
            users = {f"user_{user}": password for user, password in self._passwords.items()} if is_plain else {}
            key = f"listener.name.{self.protocol.lower()}.{self._mechanism.lower()}.sasl.jaas.config"
            settings[key] = self._jaas(BROKER, **users)
        if self._has_acls:
            settings["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
            settings["super.users"] = f"User:{ADMIN};User:{BROKER}"
        return settings

    def write_stores(self) -> None:
        """Make the CA, and sign what brokers and users show.

        Raises:
            OperationError: the library that makes certificates is missing.
        """
        try:
            import cryptography  # noqa: F401  (the functions below need it)
        except ImportError:
            raise OperationError("certificates need the library cryptography", hint=EXTRA) from None
        authority = _signed("klamm local CA", None, ())
        shutil.rmtree(self._stores, ignore_errors=True)
        self._stores.mkdir(mode=0o700, parents=True)
        write_private(self._stores / "ca.pem", _pem(authority[0]))
        # The CA's key is not kept, so no other certificate can be made that this cluster would trust.
        names = (BROKER, *USERS) if self._mechanism is None else (BROKER,)
        for name in names:
            hosts = (self._host, "localhost") if name == BROKER else ()
            certificate, key = _signed(name, authority, hosts)
            write_private(self._stores / f"{name}.pem", _key_pem(key) + _pem(certificate))

    def write_clients(self, bootstrap_servers: str) -> Path:
        """Write how each user connects: a properties file for Java's clients, another for librdkafka's.

        Returns:
            The properties file of the administrator.
        """
        for user in USERS:
            common = {"bootstrap.servers": bootstrap_servers, "security.protocol": self.protocol}
            java = common | self._trust()
            librdkafka = common | {"ssl.ca.location": str(self._stores / "ca.pem")}
            if self._mechanism is None:
                store = str(self._stores / f"{user}.pem")
                java |= self._key(user)
                librdkafka |= {"ssl.certificate.location": store, "ssl.key.location": store}
            else:
                java |= {"sasl.mechanism": self._mechanism, "sasl.jaas.config": self._jaas(user)}
                librdkafka |= {"sasl.mechanism": self._mechanism, "sasl.username": user}
                librdkafka["sasl.password"] = self._passwords[user]
            write_private(properties_path(self._directory, user), format_properties(java))
            lines = (f"{name}={value}\n" for name, value in librdkafka.items())
            write_private(librdkafka_path(self._directory, user), "".join(lines))
        return properties_path(self._directory)

    async def make_users(self, zookeeper_connect: str) -> None:
        """Store the users' SCRAM credentials, where brokers look for them at their start; others need none."""
        mechanism = self._mechanism
        if mechanism not in HASHES:
            return
        client = await ZkClient.connect(zookeeper_connect, session_timeout_ms=10_000, client_name="klamm local")
        try:
            zk = KafkaZkClient(client)
            await zk.cluster.make_persistent_paths()
            for user, password in self._passwords.items():
                salt = secrets.token_bytes(16)
                credential = ScramCredential.of_password(mechanism, password, salt, ITERATIONS_MIN)
                settings = {mechanism: credential.encode()}
                await zk.configs.set_entity_configs(f"users/{user}", settings, check_controller=False)
        finally:
            await client.close()

    def _trust(self) -> dict[str, str]:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self._stores / "ca.pem")}

    def _key(self, name: str) -> dict[str, str]:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._stores / f"{name}.pem")}

    def _jaas(self, user: str, **options: str) -> str:
        assert self._mechanism is not None, "certificates need no login module"
        settings: Mapping[str, str] = {"username": user, "password": self._passwords[user], **options}
        words = " ".join(f'{name}="{value}"' for name, value in settings.items())
        return f"{_MODULES[self._mechanism]} required {words};"


def remove_security(directory: Path) -> None:
    """Remove keys, certificates and clients' files of a cluster that has ended."""
    shutil.rmtree(directory / _FOLDER, ignore_errors=True)
    for user in USERS:
        properties_path(directory, user).unlink(missing_ok=True)
        librdkafka_path(directory, user).unlink(missing_ok=True)


def _signed(name: str, issuer: Signed | None, hosts: tuple[str, ...]) -> Signed:
    """Return a new certificate and its key; without an issuer it signs itself, as a CA."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of containers and virtual machines differ.
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
    return builder.sign(key if issuer is None else issuer[1], hashes.SHA256()), key


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
