"""Very many transactional ids on one broker of ours: opened, listed, loaded after a restart, and expired (E18).

For each step it prints the seconds, how long the event loop was held (wall clock and CPU, in ms), and the broker's
memory. ``KLAMM_BENCH_IDS=20000`` takes fewer.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench_broker import anonymous_mb
from bench_controller import cpu_s, take_held_ms
from wire_client import WireClient

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.list_transactions import ListTransactionsRequest
from engine.local.cluster import LocalCluster

IDS = int(os.environ.get("KLAMM_BENCH_IDS", "100000"))
IDLE_S = 120
"""After so long an id expires: later than a new broker has loaded them."""

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transactional.id.expiration.ms": str(IDLE_S * 1000),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.enable": "false",
}


def open_ids(cluster: LocalCluster) -> None:
    """Open all, in one connection which does not wait for the answers."""
    with WireClient(cluster.bootstrap_servers) as client:

        def send() -> None:
            for number in range(IDS):
                request = InitProducerIdRequest(transactional_id=f"application-{number}", transaction_timeout_ms=60_000)
                client.send(request, 1)

        sender = threading.Thread(target=send)
        sender.start()
        for _ in range(IDS):
            assert client.answer(InitProducerIdRequest.api_key, 1).error_code == ErrorCode.NONE
        sender.join()


def listed(cluster: LocalCluster) -> int:
    """Return how many the broker knows, -1 while it loads them."""
    with WireClient(cluster.bootstrap_servers, timeout_s=60) as client:
        answer = client.ask(ListTransactionsRequest(), 0)
        return -1 if answer.error_code else len(answer.transaction_states)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Ask again and again; the answer may be long."""
    while not is_so():
        time.sleep(0.5)


def has_coordinator(cluster: LocalCluster) -> bool:
    """Return whether it serves; the first question creates its topic."""
    with WireClient(cluster.bootstrap_servers) as client:
        client.ask(FindCoordinatorRequest(key="first", key_type=1), 1)
        answer = client.ask(InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=60_000), 1)
        return not answer.error_code


def main() -> None:
    """Measure the steps, and print."""
    command = (sys.executable, str(Path(__file__).with_name("gauged_broker.py")))
    with LocalCluster(1, config=SETTINGS, commands={0: command}) as cluster:
        wait_until(lambda: has_coordinator(cluster))

        def row(name: str, work: Callable[[], object]) -> None:
            asyncio.run(take_held_ms(cluster.broker(0)))
            begun_s = time.monotonic()
            work()
            taken_s = time.monotonic() - begun_s
            wall_ms, cpu_ms = asyncio.run(take_held_ms(cluster.broker(0)))
            memory_mb = anonymous_mb(cluster.broker(0).pid or 0)
            print(f"{name:30} {taken_s:8.1f} s {wall_ms:8.0f} {cpu_ms:6.0f} ms {memory_mb:8.1f} MB", flush=True)

        row("nothing", lambda: None)
        before_s = cpu_s(cluster.broker(0))
        row(f"{IDS} ids opened", lambda: open_ids(cluster))
        print(f"{'':30} {(cpu_s(cluster.broker(0)) - before_s) / IDS * 1e6:8.0f} us of CPU each")
        row("listed", lambda: listed(cluster))
        cluster.restart_broker(0)
        row("loaded", lambda: wait_until(lambda: listed(cluster) > 0))
        row("expired", lambda: wait_until(lambda: listed(cluster) == 0))


if __name__ == "__main__":
    main()
