"""Addresses for servers on this machine.

The kernel gives client sockets ports from 32768 up, so a server that restarts may find its port taken by another
process's client. So klamm's servers use lower ports, and each test cluster its own loopback address (Linux routes all
of 127/8).

A server listens some seconds after its port was chosen. Until then the port is reserved: two clusters that start at the
same time choose different ones.
"""

from __future__ import annotations

import errno
import random
import socket
from types import TracebackType

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


class PortReservations:
    """Ports that this process has reserved. Use as a context manager, or call ``release`` once the servers listen.

    An abstract socket stands for each: the kernel lets one process have its name, until that process ends.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, host: str, port: int) -> bool:
        """Reserve a port; False if a program listens there, or will soon.

        Raises:
            OperationError: the host's name cannot be resolved, or the address is not of this machine.
        """
        _, address = _resolved(host)
        # Reserve first: the process that had the port reserved listens there by now.
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            reservation.bind(f"\0klamm-port-{address}:{port}")
        except OSError:
            reservation.close()
            return False
        try:
            is_ours = is_free(address, port)
        except OperationError:
            reservation.close()
            raise
        if is_ours:
            self._held.append(reservation)
        else:
            reservation.close()
        return is_ours

    def take_any(self, host: str, preferred: int | None = None) -> int:
        """Reserve a port below 32768 and return it: the preferred one if it is free, else a random one.

        Raises:
            OperationError: a hundred random ports were taken, the address is not of this machine, or the name unknown.
        """
        if preferred is not None and self.take(host, preferred):
            return preferred
        numbers = random.SystemRandom()
        for _ in range(100):
            port = numbers.randint(LOWEST_PORT, HIGHEST_PORT)
            if self.take(host, port):
                return port
        raise OperationError(
            f"no free port between {LOWEST_PORT} and {HIGHEST_PORT} on {host}", hint="name a port, or another address"
        )

    def release(self) -> None:
        """End all reservations."""
        while self._held:
            self._held.pop().close()

    def __enter__(self) -> PortReservations:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen on this address now.

    Raises:
        OperationError: the host's name cannot be resolved, or the address is not of this machine.
    """
    family, address = _resolved(host)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                hint = "give one of its own, such as 127.0.0.1"
                raise OperationError(f"{host} is not an address of this machine", hint=hint) from error
            return False
        return True


def _resolved(host: str) -> tuple[socket.AddressFamily, str]:
    """Return the family and the address of a host: of IPv4, where it has both."""
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        family, *_, address = min(infos, key=lambda each: each[0] is not socket.AF_INET)
        return family, str(address[0])
    except socket.gaierror as error:
        raise OperationError(
            f"the name {host} cannot be resolved", hint="check its spelling, or give an address of this machine"
        ) from error
