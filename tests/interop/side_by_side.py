"""The same requests to one of our brokers and one of Apache Kafka's, and the differences between their answers.

The comparison leaves out what must differ: topic ids become names; ports, cluster ids, sizes of volumes and the present
time are removed. The order of lists does not count, because Kafka's is that of its hash maps.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from patience import within
from wire_client import ConnectionClosed, WireClient

from engine.kafka.protocol.api_keys import API_SPECS
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.declaration import Request, Struct

UNKNOWN_ID: Final = b"nobody has this."
"""A topic id that no broker has given."""

CLOSED: Final = "the connection was closed"

_PUT_ASIDE: Final = frozenset(
    {"port", "cluster_id", "total_bytes", "usable_bytes", "session_id", "documentation", "producer_id"}
)
_NAMES: Final = (
    "name",
    "topic",
    "resource_name",
    "group_id",
    "topic_id",
    "partition_index",
    "index",
    "partition",
    "error_code",
)
_UUID: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""The suffix of the ids of a group's members."""

_WEEK_MS: Final = 7 * 86_400_000

Plain = Any
"""An answer as dicts, lists and values that can be compared."""


class Side:
    """A connection to one of the two brokers, and the ids of its topics."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._client = WireClient(address)
        self.ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def close(self) -> None:
        self._client.socket.close()

    def ask(self, request: Request, version: int) -> Any:
        """Return the answer, or CLOSED."""
        try:
            return self._client.ask(request, version)
        except (ConnectionClosed, ConnectionError):
            self.close()
            self._client = WireClient(self.address)
            return CLOSED

    def another_connection(self) -> WireClient:
        """Return a connection for a request whose answer waits; the caller closes its socket."""
        return WireClient(self.address)

    def id_of(self, topic: str) -> bytes:
        """Return a topic's id, or UNKNOWN_ID if there is no such topic."""
        return self.ids.get(topic, UNKNOWN_ID)

    def learn_ids(self) -> None:
        """Ask for all topics and keep their ids, even of deleted ones."""
        response = self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        self.ids.update({topic.name: topic.topic_id for topic in response.topics})
        self._names.update({topic.topic_id: topic.name for topic in response.topics})

    def plain(self, value: Any, field: str = "") -> Plain:
        """Return a value without what must differ."""
        if isinstance(value, Struct):
            fields = [f.name for f in value.wire_fields if f.name not in _PUT_ASIDE]
            return {name: self.plain(getattr(value, name), name) for name in fields}
        if isinstance(value, list):
            return sorted((self.plain(entry, field) for entry in value), key=_order)
        if isinstance(value, bytes | memoryview | bytearray):
            data = bytes(value)
            return self._names.get(data, data.hex()) if field.endswith("id") and any(data) else data.hex()
        if isinstance(value, str):
            return _UUID.sub("-uuid", value)
        if isinstance(value, int) and abs(value - time.time() * 1000) < _WEEK_MS:
            return "now"
        return value


Build = Callable[[Side], Request]


class SideBySide:
    """Asks both and collects the differences."""

    def __init__(self, kafka: str, klamm: str) -> None:
        self.sides = {"kafka": Side(kafka), "klamm": Side(klamm)}
        self.differences: list[str] = []

    def close(self) -> None:
        for side in self.sides.values():
            side.close()

    def prepare(self, request: Request, version: int) -> None:
        """Let both do something that must succeed, and learn the ids of the topics."""
        for side in self.sides.values():
            answer = side.ask(request, version)
            assert answer != CLOSED and not list(_errors(side.plain(answer))), answer
            side.learn_ids()

    def wait_until_led(self, *topics: str) -> None:
        """Wait until both have leaders for topics whose creation did not wait for them."""
        is_in_time = within(20)
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        for side in self.sides.values():
            while list(_errors(side.plain(side.ask(asked, 12)))):
                assert is_in_time(), f"{topics} are not led"
                time.sleep(0.02)

    def ask(
        self,
        what: str,
        build: Build | Request,
        versions: Iterable[int] | None = None,
        *,
        unlike: Collection[str] = (),
    ) -> None:
        """Ask both in every version, and note how the answers differ.

        ``unlike`` names fields that are known to differ.
        """
        request = build if isinstance(build, Request) else build(self.sides["kafka"])
        spec = API_SPECS[request.api_key]
        for version in range(spec.min_version, spec.max_version + 1) if versions is None else versions:
            kafka, klamm = (
                side.plain(side.ask(build if isinstance(build, Request) else build(side), version))
                for side in self.sides.values()
            )
            self.compare(what, version, kafka, klamm, unlike=unlike)

    def compare(self, what: str, version: int, kafka: Plain, klamm: Plain, *, unlike: Collection[str] = ()) -> None:
        """Note how two answers differ."""
        for where, theirs, ours in _differences(kafka, klamm, ""):
            if where.rpartition(".")[2] not in unlike:
                difference = f"{what} v{version} {where}: Kafka tells {_short(theirs)}, klamm {_short(ours)}"
                self.differences.append(difference)


def _order(entry: Plain) -> tuple[str, ...]:
    if not isinstance(entry, dict):
        return (f"{entry:>12}" if isinstance(entry, int) else str(entry),)
    return (*(str(entry.get(name)) for name in _NAMES), str(entry))


def _differences(theirs: Plain, ours: Plain, where: str) -> Iterator[tuple[str, Plain, Plain]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name, value in theirs.items():
            yield from _differences(value, ours[name], f"{where}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (entry, other) in enumerate(zip(theirs, ours, strict=True)):
            names = [entry[name] for name in _NAMES[:3] if entry.get(name)] if isinstance(entry, dict) else []
            yield from _differences(entry, other, f"{where}[{names[0] if names else index}]")
    elif theirs != ours:
        yield where, theirs, ours


def _errors(answer: Plain) -> Iterator[int]:
    if isinstance(answer, dict):
        if answer.get("error_code"):
            yield answer["error_code"]
        for value in answer.values():
            yield from _errors(value)
    elif isinstance(answer, list):
        for entry in answer:
            yield from _errors(entry)


def _short(value: Plain) -> str:
    return repr(value) if len(repr(value)) < 300 else f"{repr(value)[:300]}…"
