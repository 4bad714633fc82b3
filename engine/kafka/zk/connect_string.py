"""``zookeeper.connect``: the servers of an ensemble and the chroot. Text in, values out; it opens nothing."""

from __future__ import annotations

from kazoo.hosts import collect_hosts

from engine.common.errors import ConfigError


def split_connect_string(text: str) -> tuple[str, str]:
    """Split ``host:port,host:port/chroot`` into servers and chroot; drop blanks around commas.

    Raises:
        ConfigError: it names no servers.
    """
    servers, slash, chroot = text.partition("/")
    servers = ",".join(server.strip() for server in servers.split(","))
    try:
        for host, _ in collect_hosts(servers)[0]:
            # As whatever resolves it does: ``a..b`` is no name, and would end kazoo's thread.
            host.encode("idna")
    except ValueError as error:
        raise ConfigError(
            f"Invalid ZooKeeper servers {text!r}, as in zookeeper.connect: expected HOST:PORT[,HOST:PORT…][/CHROOT]",
            key="zookeeper.connect",
        ) from error
    return servers, slash + chroot


def server_addresses(text: str) -> list[tuple[str, int]]:
    """Return the servers that ``host:port,…/chroot`` names."""
    hosts, _ = collect_hosts(split_connect_string(text)[0])
    return [(str(host), int(port)) for host, port in hosts]


def normalized_chroot(path: str) -> str:
    """Return ``/a/b`` for any spelling of it, and an empty text for the root."""
    return "".join(f"/{part}" for part in path.split("/") if part)
