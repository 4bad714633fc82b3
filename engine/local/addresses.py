"""Addresses for servers on this machine. Reserves nothing: two callers are unlikely, but not certain, to get different
addresses.

The kernel gives client sockets ports from 32768 up, so a server that restarts may find its port taken by another
process's client. So klamm's servers use lower ports, and each test cluster its own loopback address (Linux routes all
of 127/8).
"""

from __future__ import annotations

import random
import socket

from engine.common.errors import OperationError

LOWEST_PORT = 20_000
HIGHEST_PORT = 32_767
"""The last port below Linux's default range for client sockets."""

ZOOKEEPER_PORT = 2181
FIRST_BROKER_PORT = 9092


def own_loopback_address() -> str:
    """Return a random address of 127.1.0.0 … 127.254.255.255: clusters do not collide, ports may be fixed."""
    random_bytes = random.SystemRandom().randbytes(2)
    return f"127.{random.SystemRandom().randint(1, 254)}.{random_bytes[0]}.{random_bytes[1] or 1}"


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen on this address now.

    Raises:
        OperationError: the host's name cannot be resolved.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror as error:
            raise OperationError(
                f"the name {host} cannot be resolved", hint="check its spelling, or give an address of this machine"
            ) from error
        except OSError:
            return False
        return True


def free_port(host: str, preferred: int | None = None) -> int:
    """Return a port below 32768 on which nobody listens: the preferred one if it is free, else a random one.

    Raises:
        OperationError: a hundred random ports were all taken, the address is not of this machine, or the name unknown.
    """
    if preferred is not None and is_free(host, preferred):
        return preferred
    numbers = random.SystemRandom()
    for _ in range(100):
        port = numbers.randint(LOWEST_PORT, HIGHEST_PORT)
        if is_free(host, port):
            return port
    raise OperationError(
        f"no free port between {LOWEST_PORT} and {HIGHEST_PORT} on {host}", hint="name a port, or another address"
    )
