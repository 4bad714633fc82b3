"""How long each request may hold a broker's event loop, and its memory: every array, text and run of bytes grown alone.

``KLAMM_BENCH_ELEMENTS`` (1,000,000) says how far arrays grow; texts to 32,767 bytes, and bytes to a million.
``KLAMM_BENCH_APIS`` names some of the APIs. ``KLAMM_BENCH_VERSIONS=highest`` takes each array and text in the highest
version that has it, instead of in all. With ``KLAMM_BENCH_RIGHTS=none`` an authorizer refuses each thing to a peer that
has logged in over TLS. The tags of a request's header grow, too. The requests name what does not exist,
so the bench measures reading, looking up and answering. Wall-clock figures hold only on a quiet machine. CPU is that of
the loop's thread between two probes.

Later requests use the memory again that earlier ones have left in the heap. With ``KLAMM_BENCH_FRESH=1`` each array
that is grown comes to a new broker, which has answered one small request of that API: the memory is all that the
request takes with its answer, and the last figure is how many times the larger of the two that is. Other parts are
left out.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench_controller import take_held_ms
from grown_requests import Path as FieldPath
from grown_requests import growing, grown
from tabulate import tabulate
from wire_client import ConnectionClosed, WireClient

from engine.admin.cluster.client_properties import load_properties
from engine.broker.handlers.registry import all_handlers
from engine.kafka.client.jaas import parse_jaas_config
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from engine.kafka.protocol.frames import encode_request
from engine.kafka.protocol.wire import append_varint
from engine.local.cluster import LocalCluster
from engine.local.local_broker import LocalBroker
from engine.local.security import properties_path

ELEMENTS = int(os.environ.get("KLAMM_BENCH_ELEMENTS", "1000000"))
BYTES = 1_000_000
CLIENT_ID = "bench"
ONLY = os.environ.get("KLAMM_BENCH_APIS", "").split()
VERSIONS = os.environ.get("KLAMM_BENCH_VERSIONS", "all")
IS_FRESH = os.environ.get("KLAMM_BENCH_FRESH") == "1"
HAS_NO_RIGHTS = os.environ.get("KLAMM_BENCH_RIGHTS") == "none"
_ENDS_THE_BROKER = {ApiKey.CONTROLLED_SHUTDOWN}
HEADER_TAGS = ("header tags",)
_WAITS = {"timeout_ms": 1000, "max_wait_ms": 0, "controller_epoch": 1, "acks": 1}
"""Values that let nothing wait for long, want an answer, and make a controller's request come from the current one."""


def cases() -> Iterator[tuple[ApiKey, int, FieldPath]]:
    """Yield what grows, API by API, the highest version first."""
    for entry in all_handlers().values():
        if entry.key in _ENDS_THE_BROKER or (ONLY and entry.key.name not in ONLY):
            continue
        seen: set[FieldPath] = set()
        for version in range(entry.max_version, entry.min_version - 1, -1):
            paths = list(growing(entry.key, version))
            paths += [HEADER_TAGS] if API_SPECS[entry.key].is_flexible_in(version) else []
            yield from ((entry.key, version, path) for path in paths if VERSIONS == "all" or path not in seen)
            seen.update(paths)


def row(broker: LocalBroker, key: ApiKey, version: int, path: FieldPath) -> list[object]:
    frame = frame_of(key, version, path, ELEMENTS)
    if IS_FRESH:
        answered(broker, frame_of(key, version, path, 1))
    asyncio.run(take_held_ms(broker))
    (Path("/proc") / str(broker.pid) / "clear_refs").write_text("5")
    before_kb = memory_kb(broker, "VmRSS")
    started_s = time.monotonic()
    size, outcome = answered(broker, frame)
    taken_s = time.monotonic() - started_s
    wall_ms, cpu_ms = asyncio.run(take_held_ms(broker))
    memory_mb = (memory_kb(broker, "VmHWM") - before_kb) / 1024
    sizes_mb = f"{memory_mb:.1f} {len(frame) / 2**20:.1f} {size / 2**20:.1f}"
    times_larger = memory_mb * 2**20 / max(len(frame), size)
    figures = f"{taken_s:.2f} {wall_ms:.0f} {cpu_ms:.0f} {sizes_mb} {times_larger:.1f}".split()
    return [key.name, version, ".".join(filter(None, path)), *figures, outcome]


def frame_of(key: ApiKey, version: int, path: FieldPath, elements: int) -> bytes:
    request = grown(key, version, path if path != HEADER_TAGS else (), elements, BYTES, **_WAITS)
    frame = bytes(encode_request(request, version, 1, CLIENT_ID))
    return with_header_tags(frame) if path == HEADER_TAGS else frame


def answered(broker: LocalBroker, frame: bytes) -> tuple[int, str]:
    """Send a request; return the answer's size in bytes, or 0 and why there is none."""
    try:
        with WireClient(broker.address, timeout_s=600) as client:
            if HAS_NO_RIGHTS:
                log_in(client, broker)
            client.socket.sendall(frame)
            return len(client.read_frame()), ""
    except (ConnectionClosed, OSError) as error:
        return 0, f"closed: {type(error).__name__}"


def grows_an_array(key: ApiKey, version: int, path: FieldPath) -> bool:
    return path != HEADER_TAGS and len(frame_of(key, version, path, 100_000)) > 200_000


def log_in(client: WireClient, broker: LocalBroker) -> None:
    """Log in as alice, to whom nobody has allowed anything."""
    folder = broker.spec.directory.parent
    config = load_properties(properties_path(folder, "alice"))
    context = ssl.create_default_context(cafile=config["ssl.truststore.location"])
    client.socket = context.wrap_socket(client.socket, server_hostname=broker.address.rpartition(":")[0])
    options = parse_jaas_config(config["sasl.jaas.config"]).options
    assert not client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
    token = f"\0{options['username']}\0{options['password']}".encode()
    assert not client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code


def with_header_tags(frame: bytes) -> bytes:
    """Return a request's frame with many tags in its header that say nothing."""
    start = 4 + 8 + 2 + len(CLIENT_ID)
    tags = bytearray()
    append_varint(tags, ELEMENTS)
    tags += bytes(2 * ELEMENTS)
    return struct.pack(">i", len(frame) - 5 + len(tags)) + frame[4:start] + tags + frame[start + 1 :]


def memory_kb(broker: LocalBroker, name: str) -> int:
    """Return a figure of the broker's memory: VmRSS now, VmHWM the most since it was last reset."""
    status = (Path("/proc") / str(broker.pid) / "status").read_text("utf-8")
    match = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    assert match is not None
    return int(match[1])


def main() -> None:
    command = (sys.executable, str(Path(__file__).with_name("gauged_broker.py")))
    headers = (
        "API",
        "version",
        "grown",
        "took, s",
        "held, ms",
        "its CPU, ms",
        "memory, MB",
        "frame, MB",
        "answer, MB",
        "times the larger",
        "",
    )
    print(f"{ELEMENTS:,} elements each")
    secured = {"secure": True, "sasl": "PLAIN", "acls": True} if HAS_NO_RIGHTS else {}
    with LocalCluster(1, commands={0: command}, **secured) as cluster:
        rows = []
        for key, version, path in cases():
            if IS_FRESH:
                if not grows_an_array(key, version, path):
                    continue
                cluster.restart_broker(0)
            rows.append(row(cluster.broker(0), key, version, path))
            if "print" in os.environ.get("KLAMM_BENCH_SHOW", ""):
                print(*rows[-1], flush=True)
    print(tabulate(rows, headers, disable_numparse=True))


if __name__ == "__main__":
    main()
