"""A broker's metrics over HTTP: ``/metrics`` for Prometheus, ``/jolokia`` for what reads JMX that way.

Requests come in threads. The figures belong to the event loop, which collects them a little at a time.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from engine.broker.metrics.jolokia import answer, asks_for_partitions, requests_of
from engine.broker.metrics.mbean import MBean
from engine.broker.metrics.prometheus import PrometheusPage
from engine.broker.server.metrics import BrokerMetrics
from engine.common.errors import OperationError
from engine.common.version import VERSION
from engine.runtime.metrics_server import PROMETHEUS_TYPE, Answer, MetricsServer

logger = logging.getLogger("kafka.server.KafkaServer")

PATIENCE_S = 20.0
"""A broker that cannot collect its figures in this time says so."""


class MetricsPages:
    """The server. Create it on the broker's event loop."""

    def __init__(self, metrics: BrokerMetrics, address: tuple[str, int]) -> None:
        """Listen.

        Raises:
            OperationError: the address is taken, or does not belong to this machine.
        """
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        try:
            self._server = MetricsServer(address, self._respond)
        except OSError as error:
            raise OperationError(
                f"klamm.metrics.listener: cannot listen at {address[0]}:{address[1]} ({error.strerror})",
                hint="give each broker a port of its own, or end the program that listens there",
            ) from error
        self._server.__enter__()
        logger.info("Serving metrics at %s", self._server.address)

    async def stop(self) -> None:
        """Close the listener. Its thread may wait for this loop."""
        await self._loop.run_in_executor(None, self._server.__exit__, None, None, None)

    def _respond(self, path: str, body: bytes | None) -> Answer:
        """Answer one request, in its own thread."""
        page, _, _ = path.partition("?")
        try:
            if page == "/metrics" and body is None:
                made: PrometheusPage = self._ask(self._metrics.page())
                return Answer(200, PROMETHEUS_TYPE, list(made.pieces()))
            if page == "/jolokia" or page.startswith("/jolokia/"):
                request = requests_of(page.removeprefix("/jolokia"), body)
                with_partitions = asks_for_partitions(request)
                mbeans: list[MBean] = self._ask(self._metrics.collect(with_partitions=with_partitions))
                return Answer(200, "application/json; charset=utf-8", answer(request, mbeans, VERSION).encode())
        except TimeoutError:
            return Answer(503, "text/plain", b"the broker is too busy to collect its metrics\n")
        return Answer(
            404, "application/json", json.dumps({"status": 404, "error": "see /metrics and /jolokia"}).encode()
        )

    def _ask(self, collecting: Coroutine[Any, Any, Any]) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(collecting, self._loop)
        try:
            return future.result(PATIENCE_S)
        except TimeoutError:
            future.cancel()
            raise
