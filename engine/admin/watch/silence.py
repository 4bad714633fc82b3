"""Which brokers do not answer although others do: it sends each a small request once a second.

A frozen broker's port still accepts connections, and ZooKeeper reports it only when its session ends, 18 s later by
Kafka's default. Nothing waits for such a broker here, and the other readings can leave it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from engine.admin.cluster.client_properties import ClientProperties
from engine.common.clock import Clock
from engine.common.errors import KlammError
from engine.common.model import BrokerInfo
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest

ASK_MS = 1_000
"""How often a broker is asked."""
LOOK_MS = 100
"""How often to look for silent brokers."""
SILENT_MS = 1_000
"""A broker that has not answered by then is silent; where the others take long, it has more time."""
_PATIENCE = 3
"""It has this many times as long as the slowest of the late answers."""
_FORGETS = 0.8
"""How much of the slowest answer's time one answer of each broker leaves."""
_GIVE_UP_MS = 5_000
"""After this long, ask again over a new connection: another process may listen there by now."""


class Silence:
    """Counts how long each broker has left a question unanswered. Pure; times are milliseconds of one clock.

    Only time between frequent looks counts. After a long gap this process, or the whole machine, stood still, and the
    answers may wait to be read. And a broker is silent only if another one has answered a later question: if nobody
    answers, the fault is most likely on this side. Once that is over, the answers of all need not come together.
    """

    def __init__(self) -> None:
        self._ran_ms = 0
        """The time that counts."""
        self._looked_ms: int | None = None
        self._asked_ms: dict[int, tuple[int, int]] = {}
        """When the oldest unanswered question was asked: by the clock, and in time that counts."""
        self._answered_ms: dict[int, int] = {}
        """When the latest answered question was asked, in time that counts."""
        self._slowest_ms = 0.0
        self._heard_ms = 0
        """When a broker last answered, in time that counts."""

    def ask(self, broker: int, now_ms: int) -> None:
        """Note a request to the broker; one that repeats an unanswered request changes nothing."""
        self._asked_ms.setdefault(broker, (now_ms, self._ran_ms))

    def answered(self, broker: int) -> None:
        _, asked_ms = self._asked_ms.pop(broker, (0, self._ran_ms))
        self._answered_ms[broker] = asked_ms
        took_ms = min(self._ran_ms - asked_ms, self._limit_ms)
        self._slowest_ms = max(took_ms, self._slowest_ms * _FORGETS ** (1 / len(self._answered_ms)))
        if self._ran_ms - self._heard_ms > ASK_MS + self._limit_ms / 2:
            # No broker answered for a while: from now on each of the others has its full time again.
            self._asked_ms = {broker_id: (at_ms, self._ran_ms) for broker_id, (at_ms, _) in self._asked_ms.items()}
        self._heard_ms = self._ran_ms

    def forget(self, broker: int) -> None:
        """The broker is gone, or nothing listens at its port: it is not silent."""
        self._asked_ms.pop(broker, None)
        self._answered_ms.pop(broker, None)

    def look(self, now_ms: int) -> dict[int, int]:
        """Return for how many milliseconds each silent broker has left its question unanswered."""
        gap_ms = 0 if self._looked_ms is None else now_ms - self._looked_ms
        self._looked_ms = now_ms
        self._ran_ms += min(gap_ms, 2 * LOOK_MS)
        latest_ms = max(self._answered_ms.values(), default=0)
        return {
            broker: now_ms - at_ms
            for broker, (at_ms, ran_ms) in sorted(self._asked_ms.items())
            if self._ran_ms - ran_ms >= self._limit_ms and latest_ms > ran_ms
        }

    @property
    def _limit_ms(self) -> float:
        return max(SILENT_MS, _PATIENCE * self._slowest_ms)


class Listener:
    """Asks all brokers, each over a separate connection. Close it at the end."""

    def __init__(self, properties: ClientProperties, clock: Clock) -> None:
        self._properties = properties
        self._clock = clock
        self._silence = Silence()
        self._clients: dict[int, BrokerClient] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._next_ms = 0

    async def look(self, brokers: Iterable[BrokerInfo]) -> dict[int, int]:
        """Ask these brokers if it is time, and return for how many milliseconds each silent one has been silent."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + ASK_MS
            places = {broker.id: self._place_of(broker) for broker in brokers}
            for broker, client in list(self._clients.items()):
                if places.get(broker) != (client.host, client.port):
                    await self._leave(broker)
            for broker, place in places.items():
                if place is not None and broker not in self._asking:
                    self._silence.ask(broker, now_ms)
                    asking = self._ask(broker, self._client_of(broker, *place))
                    self._asking[broker] = asyncio.create_task(asking, name=f"listen-{broker}")
        return self._silence.look(now_ms)

    async def close(self) -> None:
        """Ask no broker any more."""
        for broker in list(self._clients):
            await self._leave(broker)

    def _place_of(self, broker: BrokerInfo) -> tuple[str, int] | None:
        endpoint = broker.endpoint_for(self._properties.security_protocol)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _client_of(self, broker: int, host: str, port: int) -> BrokerClient:
        if broker not in self._clients:
            self._clients[broker] = BrokerClient(
                host,
                port,
                client_id=self._properties.client_id,
                connect_timeout_ms=_GIVE_UP_MS,
                request_timeout_ms=_GIVE_UP_MS,
                security=self._properties.security,
            )
        return self._clients[broker]

    async def _ask(self, broker: int, client: BrokerClient) -> None:
        began_ms = self._clock.monotonic_ms()
        try:
            await client.connect()
            await client.send(ApiVersionsRequest(), 0)
        except (KlammError, OSError):
            # A closed port is no silence: the probes say what is wrong there. It says so at once; that a machine is
            # off comes out only after seconds.
            if self._clock.monotonic_ms() - began_ms < SILENT_MS:
                self._silence.forget(broker)
            await client.close()
        else:
            self._silence.answered(broker)
        finally:
            self._asking.pop(broker, None)

    async def _leave(self, broker: int) -> None:
        task = self._asking.pop(broker, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._silence.forget(broker)
        await self._clients.pop(broker).close()
