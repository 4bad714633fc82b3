"""A ZooKeeper server with SASL, and a port for TLS; and what clients need to get in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from certificates import Authority
from klamm_program import properties_file

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

SECURE_PORT = 21281
PASSWORDS = {"kafka": "zk-Secr3t", "alice": 'al1ce, "quoted" Secr3t'}
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


class SecuredZooKeeper:
    """The running server. Files of clients are written into its folder."""

    def __init__(self, folder: Path, server: EmbeddedZooKeeper, ca: Authority) -> None:
        self.folder, self.server, self.ca = folder, server, ca
        self.connect_string = server.connect_string
        self.secure_connect_string = f"{server.host}:{SECURE_PORT}"

    def jaas(self, user: str, password: str | None = None, section: str = "Client") -> Path:
        """Write a JAAS file with which a user logs in to ZooKeeper."""
        path = self.folder / f"jaas-{len(list(self.folder.glob('jaas-*')))}.conf"
        path.write_text(
            f"{section} {{\n  {digest_module(user, PASSWORDS[user] if password is None else password)}\n}};\n"
        )
        return path

    def tls(self, **properties: str) -> dict[str, str]:
        """Return the properties with which Kafka's tools speak TLS to it; dots in names are given as underscores."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": str(self.folder / "ca.pem"),
            **{name.replace("_", "."): value for name, value in properties.items()},
        }

    def write(self, properties: Mapping[str, str]) -> Path:
        return properties_file(self.folder, properties)


def digest_module(user: str, password: str) -> str:
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'{DIGEST_MODULE} required username="{user}" password="{escaped}";'


@contextmanager
def secured_zookeeper(
    folder: Path, *, settings: Mapping[str, str] | None = None, has_tls: bool = True
) -> Iterator[SecuredZooKeeper]:
    """Start the server and end it at the end; ``settings`` are further lines of its ``zoo.cfg``."""
    host, ca = own_loopback_address(), Authority()
    (folder / "ca.pem").write_text(ca.pem)
    store = ca.sign("zookeeper", [host, "zookeeper.example"]).write_pem(folder / "zookeeper.pem")
    users = " ".join(
        f'user_{name}="{password.replace(chr(34), chr(92) + chr(34))}"' for name, password in PASSWORDS.items()
    )
    login = folder / "server.conf"
    login.write_text(f"Server {{\n  {DIGEST_MODULE} required {users};\n}};\n")
    given = {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    if has_tls:
        given |= {
            "secureClientPort": str(SECURE_PORT),
            "secureClientPortAddress": host,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "ssl.keyStore.location": str(store),
            "ssl.trustStore.location": str(folder / "ca.pem"),
            "ssl.clientAuth": "want",
        }
    server = EmbeddedZooKeeper(
        host=host,
        fsync=False,
        settings=given | dict(settings or {}),
        java_options=[f"-Djava.security.auth.login.config={login}"],
    )
    with server:
        yield SecuredZooKeeper(folder, server, ca)
