"""Serves metrics over HTTP from separate threads: pages for Prometheus, or other answers to requests."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PATIENCE_S = 30.0
"""How long a scraper may take to send its request and to take the answer."""
_PLAIN = "text/plain; charset=utf-8"
REQUESTS_MAX = 16
"""Requests that are answered at a time; further ones are turned away."""
BODY_BYTES_MAX = 1024 * 1024


class Answer(NamedTuple):
    """What a request gets."""

    status: int
    content_type: str
    body: bytes | Sequence[bytes]
    """In pieces if it is large, or to put it together would cost as much as to send it."""


Respond = Callable[[str, bytes | None], Answer]
"""Answers a request: its path with the query, and the body of a POST. It runs in a thread of the request's own."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._room = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Turn a request away while too many others are not done: a scraper that never reads must not cost a thread."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a scraper that has hung up: it will come again."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Page:
    """A page that is made when it is first asked for, once."""

    def __init__(self, make: Callable[[], str], trouble: str, read_at_s: float) -> None:
        self._make = make
        self._text: bytes | None = None
        self._making = threading.Lock()
        self.trouble = trouble
        self.read_at_s = read_at_s

    def text(self) -> bytes:
        with self._making:
            if self._text is None:
                self._text = self._make().encode()
            return self._text


class MetricsServer:
    """Answers for as long as it is open: with the page last handed over, unless ``respond`` answers."""

    def __init__(self, address: tuple[str, int], respond: Respond | None = None) -> None:
        """Listen.

        Raises:
            OSError: another program listens there, or there is no such address.
        """
        self._page: _Page | None = None
        answer = respond or self._respond

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S

            def do_GET(self) -> None:
                self._send(answer(self.path, None))

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length", "")
                if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
                    self._send(Answer(413, "text/plain", f"a body of at most {BODY_BYTES_MAX} bytes\n".encode()))
                else:
                    self._send(answer(self.path, self.rfile.read(int(length))))

            def _send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.content_type)
                pieces = [answer.body] if isinstance(answer.body, bytes) else answer.body
                self.send_header("Content-Length", str(sum(map(len, pieces))))
                self.end_headers()
                self.wfile.writelines(pieces)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: a scraper comes every few seconds."""

        self._server = _Server(address, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def _respond(self, path: str, body: bytes | None) -> Answer:
        path, page = path.partition("?")[0], self._page
        if body is not None or path not in ("/metrics", "/", "/healthz"):
            return Answer(404, _PLAIN, b"see /metrics and /healthz\n")
        if page is None:
            return Answer(503, _PLAIN, b"nothing has been read yet\n")
        if path != "/healthz":
            return Answer(200, PROMETHEUS_TYPE, page.text())
        if page.trouble:
            return Answer(503, _PLAIN, f"{page.trouble}\n".encode())
        return Answer(200, _PLAIN, f"ok: read {max(0.0, time.time() - page.read_at_s):.1f} s ago\n".encode())

    @property
    def address(self) -> str:
        """Where it listens, as a URL."""
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host!s}]' if ':' in str(host) else host!s}:{port}/metrics"

    def show(self, make: Callable[[], str], *, trouble: str = "", read_at_s: float | None = None) -> None:
        """From now on answer with what this makes; the first scraper's thread asks it, once.

        Args:
            trouble: why the cluster does not answer; ``/healthz`` says it, with 503.
            read_at_s: when the data were read, by the wall clock; None: now.
        """
        self._page = _Page(make, trouble, time.time() if read_at_s is None else read_at_s)

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
