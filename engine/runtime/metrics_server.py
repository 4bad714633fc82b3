"""A page of metrics for Prometheus to scrape, at ``/metrics``. Each answer is the text last handed over."""

from __future__ import annotations

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PATIENCE_S = 30.0
"""How long a scraper may take to send its request and to take the answer."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a scraper that has hung up: it will come again."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class MetricsServer:
    """Serves one text from a thread of its own, for as long as it is open."""

    def __init__(self, address: tuple[str, int]) -> None:
        """Listen.

        Raises:
            OSError: somebody else listens there, or there is no such address.
        """
        self._text = b""
        server = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S

            def do_GET(self) -> None:
                is_page = self.path.partition("?")[0] in ("/metrics", "/")
                body = server._text if is_page else b"see /metrics\n"
                self.send_response(200 if is_page else 404)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: a scraper comes every few seconds."""

        self._server = _Server(address, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def address(self) -> str:
        """Where it listens, as a URL."""
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host!s}]' if ':' in str(host) else host!s}:{port}/metrics"

    def show(self, text: str) -> None:
        """From now on answer with this."""
        self._text = text.encode()

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
