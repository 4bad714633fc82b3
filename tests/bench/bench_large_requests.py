"""Every API that a broker answers, with a request as large as a client may send: the longest hold of the event loop.

``KLAMM_BENCH_ELEMENTS`` (200,000) says how many elements a request has; ``KLAMM_BENCH_APIS`` names some of the APIs.
The requests name topics and groups that do not exist, so the bench measures reading, looking up and answering.
Wall-clock figures hold only on a quiet machine. CPU is that of the loop's thread between two probes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from bench_controller import take_held_ms
from large_requests import large_request
from tabulate import tabulate
from wire_client import ConnectionClosed, WireClient

from engine.broker.handlers.registry import all_handlers
from engine.kafka.protocol.api_keys import ApiKey
from engine.local.cluster import LocalCluster
from engine.local.local_broker import LocalBroker

ELEMENTS = int(os.environ.get("KLAMM_BENCH_ELEMENTS", "200000"))
ONLY = os.environ.get("KLAMM_BENCH_APIS", "").split()
_ENDS_THE_BROKER = {ApiKey.CONTROLLED_SHUTDOWN}
_WAITS = {"timeout_ms": 1000, "max_wait_ms": 0, "controller_epoch": 1}


def values_of(request: object) -> None:
    """Return values that let nothing wait for long, and make a controller's request come from the current one."""
    for name, value in _WAITS.items():
        if hasattr(request, name):
            setattr(request, name, value)


def row(broker: LocalBroker, key: ApiKey, version: int) -> list[object]:
    request = large_request(key, version, ELEMENTS)
    values_of(request)
    asyncio.run(take_held_ms(broker))
    started_s = time.monotonic()
    try:
        with WireClient(broker.address, timeout_s=240) as client:
            client.ask(request, version)
        outcome = ""
    except (ConnectionClosed, OSError) as error:
        outcome = f"the connection was closed: {type(error).__name__}"
    taken_s = time.monotonic() - started_s
    wall_ms, cpu_ms = asyncio.run(take_held_ms(broker))
    return [key.name, version, f"{taken_s:.2f}", f"{wall_ms:.0f}", f"{cpu_ms:.0f}", outcome]


def main() -> None:
    command = (sys.executable, str(Path(__file__).with_name("gauged_broker.py")))
    with LocalCluster(1, commands={0: command}) as cluster:
        rows = [
            row(cluster.broker(0), entry.key, entry.max_version)
            for entry in all_handlers().values()
            if entry.key not in _ENDS_THE_BROKER and (not ONLY or entry.key.name in ONLY)
        ]
    headers = ("API", "version", "took, s", "held, ms", "its CPU, ms", "")
    print(f"{ELEMENTS:,} elements each")
    print(tabulate(rows, headers, disable_numparse=True))


if __name__ == "__main__":
    main()
