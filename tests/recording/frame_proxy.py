"""A proxy before each broker, which notes the frames that pass.

Brokers advertise the proxy's address, so that everything between brokers and most of what clients say goes through it.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from engine.kafka.protocol.api_keys import ApiKey

WHOLE_MAX_BYTES = 20_000
"""Longer frames pass, but are not noted."""


class FrameProxy:
    """Listens for one broker. ``frames`` grows while it runs; a frame is a dict as in `fixtures/frames`."""

    def __init__(self, broker_id: int, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self.frames: list[dict[str, Any]] = []
        self._broker_id = broker_id
        self._target = target
        self._server = socket.create_server(listen)
        self._server.settimeout(0.2)
        self._is_closed = False
        self._thread = threading.Thread(target=self._accept, name=f"proxy-{broker_id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept nothing more; connections end with their broker."""
        self._is_closed = True
        self._thread.join()
        self._server.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._server.accept()
            except TimeoutError:
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(None)
        try:
            broker = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        asked: dict[int, dict[str, Any]] = {}
        back = threading.Thread(target=self._carry, args=(broker, client, asked, False), daemon=True)
        back.start()
        self._carry(client, broker, asked, True)

    def _carry(self, source: socket.socket, sink: socket.socket, asked: dict[int, dict[str, Any]], ask: bool) -> None:
        try:
            for frame in _frames(source):
                # Noted first: the answer must not come before its question is known.
                self._note(frame, asked, ask)
                sink.sendall(frame)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            source.close()

    def _note(self, frame: bytes, asked: dict[int, dict[str, Any]], is_request: bool) -> None:
        if is_request:
            key, version, correlation_id, size = struct.unpack_from(">hhih", frame, 4)
            noted = {"api": API_NAMES.get(key, str(key)), "key": key, "version": version, "broker": self._broker_id}
            noted |= {"client": frame[14 : 14 + max(size, 0)].decode(), "correlation": correlation_id}
            asked[correlation_id] = noted
        else:
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            noted = asked.pop(correlation_id)
        if len(frame) <= WHOLE_MAX_BYTES:
            direction = "request" if is_request else "response"
            self.frames.append({**noted, "dir": direction, "hex": frame.hex()})


API_NAMES = {int(key): "".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey}


def _frames(source: socket.socket) -> Iterator[bytes]:
    buffer = bytearray()
    while chunk := source.recv(1 << 16):
        buffer += chunk
        while len(buffer) >= 4 and len(buffer) >= (size := 4 + int.from_bytes(buffer[:4], "big")):
            yield bytes(buffer[:size])
            del buffer[:size]
