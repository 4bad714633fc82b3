"""TLS on a server's connection: it decrypts in front of the inbox and encrypts behind the queue of answers.

The socket stays the connection's own, so limits count from the accept on, and answers keep their order and their ranges
of files. A thread computes handshakes, whose signatures take a millisecond each. Records are encrypted on the loop:
Python's TLS gets 16 kB a call and takes the GIL between two calls, for which a thread would wait 64 times a megabyte.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, Final, Protocol

from engine.broker.network.cold_ranges import read_into_if_cached
from engine.broker.network.connection import ADMIT_WITHIN_MS, CloseReason, Connection, ConnectionContext
from engine.broker.network.sender import NOT_IN_MEMORY, SOCKET_FULL, Range, RangeTruncated, Sender, SocketSender
from engine.common.errors import RemoteProtocolError
from engine.kafka.protocol.codec import Outgoing
from engine.runtime.receive_buffers import SCARCE_BYTES

logger = logging.getLogger(__name__)

RECORD_BYTES_MAX: Final = 16 * 1024
"""Most bytes of one TLS record."""

_SEALED_RECORD_BYTES_MAX: Final = RECORD_BYTES_MAX + 2048
"""With checksum and padding, as TLS 1.2 allows them."""

_RECORD_HEAD: Final = struct.Struct(">HxH")
_RECORD_BEGINNINGS: Final = frozenset(kind << 8 | 3 for kind in range(20, 25))
"""The first two bytes of a record: its kind, and what all versions since SSL 3 begin with."""

_FEW_RECORDS: Final = 4
"""This many are decrypted straight into the inbox; more, which are small, at once and then copied."""

_TAKEN_BYTES: Final = 2 * (RECORD_BYTES_MAX + 64)
"""Bytes that TLS gets at a time: two of the largest records, with their heads and checksums."""

_TAKEN_RECORDS: Final = 128
"""Records that TLS gets at a time. If each is a KeyUpdate, they take 2 ms."""

SEALED_BYTES_MAX: Final = 8 * RECORD_BYTES_MAX
"""Bytes to encrypt ahead of the socket: a slow peer holds no more of them."""

_HANDSHAKE_THREADS: Final = 2
"""They leave processors to the loop while thousands of peers shake hands."""

_HANDED_OVER_MAX: Final = 4 * _HANDSHAKE_THREADS
"""At most this many steps wait for the threads: enough to keep them at work. A thousand at once would hold the loop."""

_NOTHING: Final = memoryview(b"")

_received = memoryview(bytearray(8 * RECORD_BYTES_MAX))
"""What has come last. All connections of the loop share it: what cannot be decrypted at once is copied."""

_scratch = memoryview(bytearray(SEALED_BYTES_MAX))
"""What is encrypted next. All connections of the loop share it: nothing stays in it."""


class TlsPolicy(Protocol):
    """What a listener asks of TLS."""

    @property
    def tls(self) -> ssl.SSLContext:
        """The context for the next handshake; a reloaded certificate is in a new one."""

    def principal_of(self, certificate: bytes | None) -> str:
        """Return who shows this certificate (DER), or none."""


class TlsSender(SocketSender):
    """Encrypts what it sends. Its queue is in clear but for the head, which may be encrypted already."""

    __slots__ = ("_is_head_sealed", "_outgoing", "_tls")

    turn_bytes_max = 512 * 1024
    """Encrypting costs about as much as everything else together."""

    def __init__(
        self,
        tls: ssl.SSLObject,
        outgoing: ssl.MemoryBIO,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_drained: Callable[[], None],
        on_error: Callable[[OSError], None],
        now_ms: Callable[[], int],
        *,
        descriptors_max: int,
    ) -> None:
        super().__init__(loop, fd, on_drained, on_error, now_ms, descriptors_max=descriptors_max)
        self._tls = tls
        self._outgoing = outgoing
        self._is_head_sealed = False

    def send(self, out: Outgoing) -> None:
        if self._queue or out.ranges or len(out) > SEALED_BYTES_MAX:
            self._begin_to_send(out)
            return
        try:
            records = self._encrypted(memoryview(out))
        except ssl.SSLError as error:
            self._on_error(error)
        else:
            self._send_now(records)

    def send_records(self) -> None:
        """Send what TLS itself has to say: behind what is encrypted, before what is not."""
        if not self._outgoing.pending:
            return
        records = self._outgoing.read()
        if not self._queue:
            self._send_now(records)
            return
        if self._is_head_sealed:
            head = self._queue.popleft()
            assert isinstance(head, memoryview)
            self.queued_bytes -= len(head)
            records = bytes(head) + records
        self._put_records_first(memoryview(records))

    def _send_now(self, records: bytes) -> None:
        try:
            sent = os.write(self._fd, records)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._on_error(error)
            return
        if sent < len(records):
            self._put_records_first(memoryview(records)[sent:])
            self._pump()

    def _send_head(self, sock: object) -> int:
        if not self._is_head_sealed and not self._seal():
            return NOT_IN_MEMORY
        head = self._queue[0]
        assert isinstance(head, memoryview) and self._socket is not None
        try:
            sent = self._socket.send(head)
        except BlockingIOError:
            return SOCKET_FULL
        if sent < len(head):
            self._queue[0] = head[sent:]
            return sent
        self._queue.popleft()
        self._is_head_sealed = False
        return sent

    def _seal(self) -> bool:
        """Encrypt the next bytes of the queue; False: a thread reads them first."""
        filled, queue = 0, self._queue
        while queue and filled < SEALED_BYTES_MAX:
            head, room = queue[0], _scratch[filled:]
            if isinstance(head, memoryview):
                size = min(len(head), len(room))
                room[:size] = head[:size]
                rest = len(head) - size
                queue[0] = head[size:]
            else:
                size = min(head.remaining, len(room))
                if not _read(head, room[:size]):
                    if filled:
                        break
                    self._bring_in(head, size)
                    return False
                head.position += size
                head.remaining -= size
                rest = head.remaining
            filled += size
            if not rest:
                queue.popleft()
        records = self._encrypted(_scratch[:filled])
        self.queued_bytes -= filled
        self._put_records_first(memoryview(records))
        return True

    def _encrypted(self, data: memoryview) -> bytes:
        """Return records with this content, behind what TLS itself has to say.

        TLS's buffer keeps the largest size that it once had, so each record is taken out at once.
        """
        records = []
        while data:
            data = data[self._tls.write(data[:RECORD_BYTES_MAX]) :]
            records.append(self._outgoing.read())
        return b"".join(records)

    def _put_records_first(self, records: memoryview) -> None:
        self._queue.appendleft(records)
        self.queued_bytes += len(records)
        self._is_head_sealed = True


class TlsConnection(Connection):
    """A connection whose bytes are encrypted. Handlers and answers know nothing of it."""

    def __init__(self, context: ConnectionContext, policy: TlsPolicy) -> None:
        super().__init__(context)
        self._policy = policy
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._encrypted = _NOTHING
        """What has come and TLS does not have yet: it gets whole records only, of which it keeps nothing to itself. Its
        buffer keeps the largest size that it once had, so it gets little at a time.
        """
        self._tls = policy.tls.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # Without a Python frame for each record.
        self._read: Callable[..., Any] = getattr(self._tls, "_sslobj", self._tls).read
        self._woken_by_bytes = 1
        """This many have to come before the kernel wakes the loop."""
        self._is_shaking_hands = False
        """A thread uses the TLS object, so nobody else may."""
        self._are_hands_shaken = False
        self.admit_until_ms = context.now_ms() + ADMIT_WITHIN_MS

    def _make_sender(self, transport: asyncio.Transport) -> Sender:
        context = self._context
        return TlsSender(
            self._tls, self._outgoing, asyncio.get_running_loop(), self.descriptor, self._go_on, self._on_write_error,
            context.now_ms, descriptors_max=context.descriptors_max,
        )  # fmt: skip

    # The transport's callbacks.

    def get_buffer(self, sizehint: int) -> memoryview:
        # Only a copy: if nothing comes now, others use the buffer before the next read.
        rest = len(self._encrypted)
        _received[:rest] = self._encrypted
        if self._context.buffers.is_depleted and self._inbox.is_empty:
            return _received[rest : rest + SCARCE_BYTES]
        return _received[rest:]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_ms = self._context.now_ms()
        self._encrypted = _received[: len(self._encrypted) + nbytes]
        if self._are_hands_shaken:
            self._open_records()
        else:
            self._shake_hands()

    # Handshakes.

    def _shake_hands(self) -> None:
        is_whole = bool(self._take_next())
        self._keep_encrypted()
        self._be_woken_by(1 if is_whole else self._missing_bytes())
        if not is_whole:
            self._resume_reading()
            return
        # No bytes come meanwhile: the thread reads those that have come.
        self._is_shaking_hands = True
        self._pause_reading()
        _handshakes(asyncio.get_running_loop()).put(self)

    def begin_step(self) -> asyncio.Future[None] | None:
        """Have a thread take the next step of the handshake; None if nobody waits for it any more."""
        if self.closed_because is not None:
            return None
        step = asyncio.get_running_loop().run_in_executor(_threads(), self._tls.do_handshake)
        step.add_done_callback(self._took_step)
        return step

    def _missing_bytes(self) -> int:
        """Return how many bytes the record that has begun still lacks, or its head."""
        come = len(self._encrypted)
        if come < _RECORD_HEAD.size:
            return _RECORD_HEAD.size - come
        _, size = _RECORD_HEAD.unpack_from(self._encrypted)
        return _RECORD_HEAD.size + int(size) - come

    def _be_woken_by(self, size_bytes: int) -> None:
        """Hear of no fewer bytes, or of the end: thousands who send a byte at a time take turns from nobody."""
        if size_bytes != self._woken_by_bytes and self._transport is not None:
            self._woken_by_bytes = size_bytes
            peer: socket.socket = self._transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)

    def _took_step(self, step: asyncio.Future[None]) -> None:
        error = step.exception()
        self._is_shaking_hands = False
        if self.closed_because is not None or self._sender is None:
            return
        self._send_records()
        if error is None:
            self._admit()
        elif not isinstance(error, ssl.SSLWantReadError):
            self._refuse_peer(error)
        elif self._encrypted:
            self._shake_hands()
        else:
            self._resume_reading()

    def _admit(self) -> None:
        if self.session.login is None:
            try:
                self.session.principal = self._policy.principal_of(self._tls.getpeercert(binary_form=True))
            except RemoteProtocolError as error:
                self._refuse_peer(error)
                return
            self.admit_until_ms = None
            self._context.totals.logins += 1
            self._context.totals.logins_without_renewal += 1
        self._are_hands_shaken = True
        self._resume_reading()
        self._open_records()

    def _refuse_peer(self, error: BaseException) -> None:
        logger.info(
            "Failed authentication with %s:%d (SSL handshake failed: %s) listener=%s",
            self.session.host, self.session.port, getattr(error, "reason", None) or error, self.session.listener_name,
        )  # fmt: skip
        self.closed_because = CloseReason.NOT_AUTHENTICATED
        self._shut()

    # Records.

    def _open_records(self) -> None:
        """Decrypt and handle what has come, as long as requests can be handled."""
        try:
            while self._has_more and self._can_handle():
                room = self._inbox.room()
                filled, is_over = self._decrypt_into(room)
                if filled:
                    self._inbox.received(filled)
                    self._handle()
                if is_over:
                    self._hear_the_end()
                    break
                if filled < len(room):
                    # No whole record is left.
                    break
        except ssl.SSLError as error:
            self._send_records()
            logger.info(
                "Closing a connection because its TLS is broken: %s peer=%s:%d listener=%s",
                error.reason or error, self.session.host, self.session.port, self.session.listener_name,
            )  # fmt: skip
            self.closed_because = self.closed_because or CloseReason.PEER_BROKE_PROTOCOL
            self._shut()
            return
        if self._outgoing.pending and self.closed_because is None:
            self._send_records()
        self._keep_encrypted()
        if not self._can_handle():
            self._settle()

    @property
    def _has_more(self) -> bool:
        """Whether bytes have come that are not decrypted, or decrypted ones that the inbox had no room for."""
        return bool(self._encrypted or self._incoming.pending or self._tls.pending())

    def _decrypt_into(self, room: memoryview) -> tuple[int, bool]:
        """Return the number of bytes, and whether the peer has said that it sends no more."""
        filled, size_max, tls, incoming, read = 0, len(room), self._tls, self._incoming, self._read
        parts: list[bytes] = []
        is_over = False
        while filled < size_max and not is_over and not self._waits_for_turn:
            sizes: list[int] = []
            if not incoming.pending and not tls.pending():
                sizes = self._take_next()
                if not sizes:
                    break
            try:
                if len(sizes) > _FEW_RECORDS and sum(sizes) <= size_max - filled:
                    # Clients like librdkafka put each record of a batch into a TLS record of its own.
                    parts.extend(map(read, sizes))
                    is_over = not parts[-1]
                else:
                    size = read(size_max - filled, room[filled:])
                    is_over = not size
                    filled += size
            except ssl.SSLWantReadError:
                # A record of TLS itself was among them. New keys cost as much as ten small requests.
                self._wait_for_turn()
            except ssl.SSLZeroReturnError:
                is_over = True
            if parts:
                joined = b"".join(parts)
                parts.clear()
                room[filled : filled + len(joined)] = joined
                filled += len(joined)
        return filled, is_over

    def _take_next(self) -> list[int]:
        """Give TLS the next whole records of what has come; return at least as many bytes as each holds.

        What is no record it gets at once, and says what is wrong with it.
        """
        data, end = self._encrypted, 0
        sizes: list[int] = []
        # Each step counts: clients like librdkafka send dozens of records at a time.
        head, note = _RECORD_HEAD.unpack_from, sizes.append
        stop, head_bytes = min(len(data), _TAKEN_BYTES), _RECORD_HEAD.size
        for _ in range(_TAKEN_RECORDS):
            body = end + head_bytes
            if body > stop:
                break
            beginning, size = head(data, end)
            if size > _SEALED_RECORD_BYTES_MAX or beginning not in _RECORD_BEGINNINGS:
                end = len(data)
                note(RECORD_BYTES_MAX)
                break
            if body + size > stop:
                break
            end = body + size
            # To read nothing says nothing.
            note(size or 1)
        if sizes:
            self._incoming.write(data[:end])
            self._encrypted = data[end:]
        return sizes

    def _keep_encrypted(self) -> None:
        """Copy what has to wait: other connections need the buffer."""
        if self._encrypted:
            self._encrypted = memoryview(bytes(self._encrypted))

    def _hear_the_end(self) -> None:
        self.hears_nothing_more = True
        self._settle()

    def _go_on(self) -> None:
        super()._go_on()
        if self._are_hands_shaken and self._has_more:
            self._open_records()

    def _resume_reading(self) -> None:
        if not self._is_shaking_hands:
            super()._resume_reading()

    def _send_records(self) -> None:
        if isinstance(self._sender, TlsSender):
            self._sender.send_records()

    def _shut(self) -> None:
        if not self._is_shaking_hands:
            # The peer has not said its end yet, and need not.
            with suppress(ssl.SSLError, ValueError):
                self._tls.unwrap()
            self._send_records()
        super()._shut()


def _read(head: Range, room: memoryview) -> bool:
    """Fill ``room`` from a range; False if that would wait for the disk.

    Raises:
        RangeTruncated: the file has ended early, so the promised bytes cannot be sent.
    """
    if head.cached_until < head.position + len(room):
        return read_into_if_cached(head.source.fd, room, head.position)
    if os.preadv(head.source.fd, [room], head.position) < len(room):
        raise RangeTruncated(f"the file ended before {head.position + len(room)}")
    return True


class _Handshakes:
    """Connections that wait for a thread. Networks take turns, so whoever sends thousands waits for them alone."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[TlsConnection]] = {}
        self._handed_over = 0

    def put(self, connection: TlsConnection) -> None:
        """Begin the next step of a connection's handshake once it is its turn."""
        self._waiting.setdefault(connection.session.network, deque()).append(connection)
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._handed_over < _HANDED_OVER_MAX:
            network = next(iter(self._waiting))
            those = self._waiting.pop(network)
            step = those.popleft().begin_step()
            if those:
                self._waiting[network] = those
            if step is not None:
                self._handed_over += 1
                step.add_done_callback(self._ended)

    def _ended(self, _: object) -> None:
        self._handed_over -= 1
        self._go_on()


@cache
def _handshakes(loop: asyncio.AbstractEventLoop) -> _Handshakes:
    return _Handshakes()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_HANDSHAKE_THREADS, thread_name_prefix="klamm-handshake")
