"""A TLS client that calls OpenSSL itself, for what Python's ``ssl`` does not offer: renegotiation, new keys."""

from __future__ import annotations

import _ssl
import asyncio
import ctypes
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache

PATIENCE_S = 30.0


class Pointer(ctypes.c_void_p):
    """An address in C, which ctypes would make a number of, and cut short."""


@cache
def openssl() -> ctypes.CDLL:
    """Return the OpenSSL that Python's ``ssl`` uses."""
    lib = ctypes.CDLL(_ssl.__file__)
    for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new", "SSL_get_session", "BIO_s_mem", "BIO_new"):
        getattr(lib, name).restype = Pointer
    return lib


class OpenSslPeer:
    """A client that calls OpenSSL itself, for what Python's ``ssl`` does not offer."""

    SET_VERSION_MAX = 124
    WANT_READ = 2

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: ssl.TLSVersion) -> None:
        self._reader, self._writer, self.transport = reader, writer, writer.transport
        self.lib = lib = openssl()
        self._context = lib.SSL_CTX_new(lib.TLS_client_method())
        lib.SSL_CTX_ctrl(self._context, self.SET_VERSION_MAX, ctypes.c_long(version), None)
        self.tls = lib.SSL_new(self._context)
        self._incoming, self._outgoing = lib.BIO_new(lib.BIO_s_mem()), lib.BIO_new(lib.BIO_s_mem())
        lib.SSL_set_bio(self.tls, self._incoming, self._outgoing)
        lib.SSL_set_connect_state(self.tls)
        self._held = ctypes.create_string_buffer(65_536)

    def write(self, record: bytes) -> None:
        """Encrypt a record; it goes out with the others at the next step."""
        assert self.lib.SSL_write(self.tls, record, len(record)) == len(record)

    def update_keys(self, *, peers_too: bool) -> None:
        assert self.lib.SSL_key_update(self.tls, int(peers_too)) == 1
        assert self.lib.SSL_do_handshake(self.tls) == 1

    async def read(self) -> bytes:
        size = await self.until_done(lambda: self.lib.SSL_read(self.tls, self._held, len(self._held)))
        assert size > 0, "the connection is over"
        return self._held.raw[:size]

    async def until_done(self, step: Callable[[], int]) -> int:
        """Exchange bytes until a step of TLS is over; return its result, or a number below zero."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self.lib.ERR_clear_error()
                result = step()
                self.send_records()
                if result > 0 or self.lib.SSL_get_error(self.tls, result) != self.WANT_READ:
                    return result or -1
                if not (came := await self._reader.read(65_536)):
                    return -1
                assert self.lib.BIO_write(self._incoming, came, len(came)) == len(came)

    def send_records(self) -> None:
        """Give the socket all that is encrypted."""
        records = []
        held = ctypes.create_string_buffer(65_536)
        while (size := self.lib.BIO_read(self._outgoing, held, len(held))) > 0:
            records.append(held.raw[:size])
        self._writer.write(b"".join(records))

    async def drain(self) -> None:
        """Wait until the socket has taken most of what it was given."""
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()
        self.lib.SSL_free(self.tls)
        self.lib.SSL_CTX_free(self._context)


@asynccontextmanager
async def openssl_peer(host: str, port: int, version: ssl.TLSVersion) -> AsyncIterator[OpenSslPeer]:
    peer = OpenSslPeer(*await asyncio.open_connection(host, port), version)
    try:
        assert await peer.until_done(lambda: peer.lib.SSL_do_handshake(peer.tls)) == 1
        yield peer
    finally:
        peer.close()
