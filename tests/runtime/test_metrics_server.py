"""A page of metrics, whatever its scrapers do."""

from __future__ import annotations

import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest
from patience import within

from engine.runtime import metrics_server
from engine.runtime.metrics_server import MetricsServer


def test_a_scraper_that_hangs_up_is_nobodys_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with MetricsServer(("127.0.0.1", 0)) as server:
        server.show(lambda: "x" * 20_000_000)
        port = int(server.address.rpartition(":")[2].partition("/")[0])
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as scraper:
                scraper.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                assert scraper.recv(10)
                scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.show(lambda: "up 1\n")
        with urllib.request.urlopen(server.address, timeout=30) as answer:
            assert answer.read() == b"up 1\n"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.0\r\n\r\n"], ids=["says nothing", "never reads"])
def test_scrapers_that_hang_cost_few_threads_and_only_for_a_while(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_server, "_PATIENCE_S", 2.0)
    with MetricsServer(("127.0.0.1", 0)) as server, ExitStack() as hanging:
        server.show(lambda: "x" * 20_000_000)
        port = int(server.address.rpartition(":")[2].partition("/")[0])
        before = threading.active_count()
        for _ in range(metrics_server.REQUESTS_MAX):
            hanging.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(sent)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as turned_away:
            assert turned_away.recv(1) == b""
        assert threading.active_count() - before <= metrics_server.REQUESTS_MAX
        is_in_time = within(30)
        while threading.active_count() > before:
            assert is_in_time()
            time.sleep(0.05)
        server.show(lambda: "up 1\n")
        assert status_of(server.address) == (200, "up 1\n")
    assert capsys.readouterr().err == ""


def test_it_listens_on_addresses_of_both_kinds() -> None:
    for host, shown in (("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")):
        with MetricsServer((host, 0)) as server:
            server.show(lambda: "up 1\n")
            assert server.address.startswith(shown)
            with urllib.request.urlopen(server.address, timeout=30) as answer:
                assert answer.read() == b"up 1\n"


def test_health_says_how_old_the_page_is_or_why_there_is_none() -> None:
    with MetricsServer(("127.0.0.1", 0)) as server:
        health = server.address.replace("/metrics", "/healthz")
        assert [status_of(url) for url in (server.address, health)] == [(503, "nothing has been read yet\n")] * 2
        asked: list[str] = []
        server.show(lambda: asked.append("page") or "up 1\n", read_at_s=0.0)  # type: ignore[func-returns-value]
        assert [status_of(server.address) for _ in range(2)] == [(200, "up 1\n")] * 2
        assert asked == ["page"]
        status, text = status_of(health)
        assert (status, float(text.split()[2]) > 1_000_000_000) == (200, True), text
        server.show(lambda: "up 0\n", trouble="127.0.0.1:9092: no answer")
        assert [status_of(url) for url in (server.address, health, f"{health}x")] == [
            (200, "up 0\n"), (503, "127.0.0.1:9092: no answer\n"), (404, "see /metrics and /healthz\n"),
        ]  # fmt: skip


def status_of(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
