"""How much CPU brokers on this machine use. Finds their processes by their listening sockets, if it may read them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_LISTENING = "0A"
_PROC = Path("/proc")


def find_processes(addresses: Iterable[tuple[str, int]]) -> list[int] | None:
    """Return the processes that listen at these addresses; None unless all of them are here and readable.

    Only Linux's ``/proc`` tells them, so elsewhere it is None.
    """
    wanted = [(host, port) for host, port in addresses]
    if not wanted or not all(_is_here(host) for host, _ in wanted):
        return None
    sockets = _listeners()
    if not sockets:
        return None
    owners = _owners()
    pids = [owners[inode] for host, port in wanted if (inode := _inode(sockets, host, port)) in owners and inode]
    return sorted(set(pids)) if len(pids) == len(wanted) else None


def cpu_seconds(pids: Iterable[int]) -> float | None:
    """Return the CPU that processes have used so far; None if one is gone."""
    try:
        return sum(time.clock_gettime(_cpu_clock(pid)) for pid in pids)
    except OSError:
        return None


def _cpu_clock(pid: int) -> int:
    """Return Linux's clock of a process's CPU, as clock_getcpuclockid(3) does.

    It counts nanoseconds; ``/proc/PID/stat`` counts hundredths of a second, too coarse for a short case.
    """
    return ~pid << 3 | 2


def _is_here(host: str) -> bool:
    """Whether an address is this machine's: a socket can be bound to it."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True


def _listeners() -> dict[tuple[str, int], str]:
    """Return the inodes of IPv4 and IPv6 sockets that listen, by address as /proc writes it, and port."""
    found: dict[tuple[str, int], str] = {}
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING:
                    host, _, port = fields[1].rpartition(":")
                    found[host, int(port, 16)] = fields[9]
    return found


def _inode(sockets: dict[tuple[str, int], str], host: str, port: int) -> str | None:
    with suppress(OSError):
        place = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
        exact = socket.inet_aton(str(place[0]))[::-1].hex().upper()
        mapped = f"0000000000000000FFFF0000{exact}"
        return next((sockets[one, port] for one in (exact, mapped, "0" * 8, "0" * 32) if (one, port) in sockets), None)
    return None


def _owners() -> dict[str, int]:
    """Return the processes of sockets, by inode, as far as permissions allow."""
    found: dict[str, int] = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            for link in (folder / "fd").iterdir():
                with suppress(OSError):
                    target = str(link.readlink())
                    if target.startswith("socket:["):
                        found[target[8:-1]] = int(folder.name)
    return found
