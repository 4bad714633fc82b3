"""``python commit_load.py HOST:PORT …``: sends OffsetCommit requests and counts answers; a client that costs little.

Each connection has one request under way, as a client does. Requests are encoded once and sent again and again. Any
answer but success ends the program. It prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import time
from collections.abc import Iterator

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from engine.kafka.protocol.frames import decode_response, encode_request, encode_response

VERSION = 8


class Caller:
    """One connection that commits for its groups in turn."""

    def __init__(self, address: str, frames: list[bytes], expected: bytes) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = frames
        self._size_bytes = len(expected)
        self._accepted = {expected}
        self._turn = 0
        self._received = b""

    def send(self) -> None:
        """Send the next request."""
        self.socket.sendall(self._frames[self._turn])
        self._turn = (self._turn + 1) % len(self._frames)

    def receive(self) -> bool:
        """Receive what came; return whether that was an answer."""
        self._received += self.socket.recv(65536)
        if len(self._received) < self._size_bytes:
            return False
        if self._received not in self._accepted:
            self._accept()
        self._received = b""
        return True

    def _accept(self) -> None:
        """Accept a new form of answer: Kafka orders the partitions in its own way."""
        _, response = decode_response(self._received[4:], ApiKey.OFFSET_COMMIT, VERSION)
        if any(p.error_code for topic in response.topics for p in topic.partitions):
            raise SystemExit(f"a commit failed: {response}")
        self._accepted.add(self._received)


def frames_of(group: str, topic: str, partitions: int) -> bytes:
    """Return a commit of all partitions."""
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=p, committed_offset=1000 + p, committed_leader_epoch=0)
                    for p in range(partitions)
                ],
            )
        ],
    )
    return bytes(encode_request(request, VERSION, 7, "bench"))


def answer(topic: str, partitions: int) -> bytes:
    """Return what a successful answer looks like."""
    topics = [
        OffsetCommitResponseTopic(
            name=topic, partitions=[OffsetCommitResponsePartition(partition_index=p) for p in range(partitions)]
        )
    ]
    return bytes(encode_response(OffsetCommitResponse(topics=topics), ApiKey.OFFSET_COMMIT, VERSION, 7))


def run(callers: list[Caller], count: int) -> float:
    """Wait until this many commits are answered; return the seconds that took."""
    selector = selectors.DefaultSelector()
    for caller in callers:
        selector.register(caller.socket, selectors.EVENT_READ, caller)
    begin = time.perf_counter()
    to_send = count
    waiting = 0
    for caller in callers[:count]:
        caller.send()
        to_send -= 1
        waiting += 1
    while waiting:
        for key, _ in selector.select():
            caller = key.data
            if caller.receive():
                if to_send:
                    caller.send()
                    to_send -= 1
                else:
                    waiting -= 1
    return time.perf_counter() - begin


def _shares(groups: list[str], count: int) -> Iterator[list[str]]:
    for number in range(count):
        yield groups[number::count] or [groups[number % len(groups)]]


def main() -> None:
    """Read the arguments, run, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--topic", default="read")
    parser.add_argument("--partitions", type=int, default=1)
    options = parser.parse_args()
    groups = [f"bench-{number}" for number in range(options.groups)]
    expected = answer(options.topic, options.partitions)
    callers = [
        Caller(options.address, [frames_of(g, options.topic, options.partitions) for g in share], expected)
        for share in _shares(groups, options.connections)
    ]
    elapsed_s = run(callers, options.count)
    print(json.dumps({"elapsed_s": elapsed_s, "count": options.count}))
    for caller in callers:
        caller.socket.close()


if __name__ == "__main__":
    main()
