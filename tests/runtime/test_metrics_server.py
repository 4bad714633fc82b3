"""A page of metrics, whatever its scrapers do."""

from __future__ import annotations

import socket
import struct
import urllib.request

import pytest

from engine.runtime.metrics_server import MetricsServer


def test_a_scraper_that_hangs_up_is_nobodys_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with MetricsServer(("127.0.0.1", 0)) as server:
        server.show("x" * 20_000_000)
        port = int(server.address.rpartition(":")[2].partition("/")[0])
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as scraper:
                scraper.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                assert scraper.recv(10)
                scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.show("up 1\n")
        with urllib.request.urlopen(server.address, timeout=30) as answer:
            assert answer.read() == b"up 1\n"
    assert capsys.readouterr().err == ""


def test_it_listens_on_addresses_of_both_kinds() -> None:
    for host, shown in (("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")):
        with MetricsServer((host, 0)) as server:
            server.show("up 1\n")
            assert server.address.startswith(shown)
            with urllib.request.urlopen(server.address, timeout=30) as answer:
                assert answer.read() == b"up 1\n"
