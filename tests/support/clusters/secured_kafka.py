"""One Apache Kafka broker with a listener for each security protocol, with AclAuthorizer and users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from apache_kafka import ApacheKafkaBroker
from certificates import Authority
from kafka_tools import run_tool
from klamm_program import properties_file
from token_provider import KEYS

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

FIRST_PORT = 21300
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "SAFE": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
    "ONLYPLAIN": "SASL_PLAINTEXT",
    "EXPIRED": "SSL",
    "FUTURE": "SSL",
    "NAMED": "SSL",
    "CROSSED": "SSL",
    "SECOND": "SSL",
    "SIGNED": "SASL_PLAINTEXT",
}
"""Security protocols by listener. Logins on SHORT end soon, ONLYPLAIN has one mechanism.

Certificates: MUTUAL wants the client's, those of EXPIRED and FUTURE are not valid now, and NAMED's has no address.
NAMED speaks TLS 1.3 alone. SIGNED takes tokens that ``token_provider`` signs. CROSSED is advertised at the port of
PLAINTEXT. SECOND is the listener of a second broker, too.
"""
SHORT_MS = 2_000
PASSWORDS = {"admin": "admin-Secr3t", "alice": 'al1ce, "quoted" = hidden'}
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


def jaas(mechanism: str, **options: str) -> str:
    """Return a value for ``sasl.jaas.config``, as it stands in a properties file."""
    quoted = (name + '="' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for name, value in options.items())
    return f"{MODULES[mechanism]} required {' '.join(quoted)};".replace("\\", "\\\\")


class SecuredKafka:
    """The running broker. Files of clients are written into its folder."""

    def __init__(self, folder: Path, host: str, zookeeper: str, ca: Authority) -> None:
        self.folder, self.host, self.zookeeper, self.ca = folder, host, zookeeper, ca

    def address(self, listener: str) -> str:
        return f"{self.host}:{FIRST_PORT + list(LISTENERS).index(listener)}"

    def client(self, listener: str, **properties: str) -> Path:
        """Write a client's properties for a listener; dots in names are given as underscores."""
        protocol = LISTENERS[listener]
        said = {"security_protocol": protocol}
        if protocol.endswith("SSL"):
            said |= {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(self.folder / "ca.pem")}
        return properties_file(self.folder, said | properties)

    def login(self, listener: str, mechanism: str, user: str = "admin", password: str | None = None) -> Path:
        """Write the properties of a user of this cluster."""
        if mechanism == "OAUTHBEARER":
            config = jaas(mechanism, unsecuredLoginStringClaim_sub=user)
        else:
            config = jaas(mechanism, username=user, password=PASSWORDS[user] if password is None else password)
        return self.client(listener, sasl_mechanism=mechanism, sasl_jaas_config=config)


@contextmanager
def secured_kafka(
    folder: Path, more: Mapping[str, str] | None = None, *, zookeeper: EmbeddedZooKeeper | None = None
) -> Iterator[SecuredKafka]:
    """Start the broker, with ``more`` settings, and make its users; end it at the end.

    Without a ``zookeeper`` it has one of its own.
    """
    host, ca = own_loopback_address(), Authority()
    (folder / "ca.pem").write_text(ca.pem)
    store = ca.sign("broker", ["broker.example", host]).write_pem(folder / "broker.pem")
    with nullcontext(zookeeper) if zookeeper else EmbeddedZooKeeper(host=host, fsync=False) as server:
        kafka = SecuredKafka(folder, host, f"{server.connect_string}/{folder.name}", ca)
        with ApacheKafkaBroker(
            folder,
            broker_id=0,
            host=host,
            port=FIRST_PORT,
            zookeeper_connect=kafka.zookeeper,
            overrides=_settings(kafka, store) | dict(more or {}),
            shares_jvm=True,
        ):
            _make_users(kafka)
            yield kafka


def _settings(kafka: SecuredKafka, store: Path) -> dict[str, str]:
    users = " ".join(f'user_{name}="{_quoted(password)}"' for name, password in PASSWORDS.items())
    settings = {
        "listeners": ",".join(f"{name}://{kafka.address(name)}" for name in LISTENERS),
        "advertised.listeners": ",".join(
            f"{name}://{kafka.address('PLAINTEXT' if name == 'CROSSED' else name)}" for name in LISTENERS
        ),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.folder / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.named.ssl.enabled.protocols": "TLSv1.3",
        "sasl.enabled.mechanisms": ",".join(MODULES),
        "listener.name.onlyplain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.short.connections.max.reauth.ms": str(SHORT_MS),
        "delegation.token.secret.key": "token-Secr3t",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS;User:CN=admin",
    }
    others = {"EXPIRED": ((-9, -2), kafka.host), "FUTURE": ((2, 9), kafka.host), "NAMED": ((-1, 9), "broker.example")}
    for name, (days, subject) in others.items():
        path = kafka.ca.sign("broker", [subject], days=days).write_pem(kafka.folder / f"{name}.pem")
        settings[f"listener.name.{name.lower()}.ssl.keystore.location"] = str(path)
    keys = kafka.folder / "keys.json"
    keys.write_text(KEYS)
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    settings |= {
        "listener.name.signed.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.signed.oauthbearer.sasl.server.callback.handler.class": handler,
        "listener.name.signed.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "listener.name.signed.sasl.oauthbearer.expected.audience": "brokers",
        "listener.name.signed.sasl.oauthbearer.expected.issuer": "https://idp",
    }
    for name, protocol in LISTENERS.items():
        if protocol.startswith("SASL"):
            for mechanism, module in MODULES.items():
                options = {"PLAIN": f" {users}", "OAUTHBEARER": ' unsecuredLoginStringClaim_sub="admin"'}.get(
                    mechanism, ""
                )
                key = f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"
                settings[key] = f"{module} required{options};".replace("\\", "\\\\")
    return settings


def _make_users(kafka: SecuredKafka) -> None:
    """Give the users their SCRAM passwords; one request of Kafka's tool changes one user."""
    for user, password in PASSWORDS.items():
        credentials = kafka.folder / "scram.properties"
        escaped = password.replace("\\", "\\\\")
        credentials.write_text(f"SCRAM-SHA-256=iterations=4096,password={escaped}\nSCRAM-SHA-512=password={escaped}\n")
        done = run_tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", kafka.address("PLAINTEXT"), "--alter",
            "--entity-type", "users", "--entity-name", user, "--add-config-file", str(credentials),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
