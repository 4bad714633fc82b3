"""Whether brokers may be asked for what they read from ZooKeeper: settings of topics, quotas, credentials.

Such a request blocks one of the request threads (``num.io.threads``, eight) of an Apache Kafka broker until ZooKeeper
answers. While ZooKeeper does not answer, eight requests make the broker deaf to all clients, including producers. So
after a request without an answer, klamm waits a while before it asks again, and if ZooKeeper itself is dead, it does
not ask until ZooKeeper is back. If klamm cannot reach ZooKeeper, the brokers may still reach it: klamm sends one
request with a short timeout.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from engine.admin.cluster.errors import Unreachable, ZooKeeperDead
from engine.admin.cluster.remedies import Give, Operation, Parameter, Phrase
from engine.kafka.zk.security import OPEN, ZkSecurity

FIRST_REST_S, REST_MAX_S = 30.0, 3600.0
"""How long not to ask after the first silence, and at most: each silence doubles it."""
ZOOKEEPER_REST_S = 10.0
"""How long after a try klamm tries a ZooKeeper again that was away. A try costs the brokers nothing."""
ABSENT_ZOOKEEPER_LIMIT_S = 5.0
"""How long an answer may take if klamm itself cannot reach ZooKeeper: a broker that can answers at once."""

UNKNOWN_SETTINGS_HINT = Phrase("brokers read them from ZooKeeper: is it up? ", Operation.CHECK_ZOOKEEPER, " tells")
DEAD_ZOOKEEPER = "brokers were not asked, for they read this from ZooKeeper, which seems to be dead"
ASK_ALL_THE_SAME = Phrase(
    Give(Parameter.VIA, "wire"),
    " asks the brokers all the same: each question may keep one of a broker's request threads until ZooKeeper is back",
)


class SettingsSilence:
    """What is known of brokers' silence. All connections of a command share one, because it may ask repeatedly."""

    def __init__(self) -> None:
        self._trouble: str | None = None
        self._rest_s = FIRST_REST_S / 2
        self._until_s = -math.inf
        self._away: _AwayZooKeeper | None = None
        self.limit_s = math.inf
        """How long an answer may take at most."""

    async def check(self) -> None:
        """Raise Unreachable if it is too soon to ask again, or ZooKeeper is dead."""
        await self.zookeeper_trouble()
        if self._away is not None and self._away.is_dead:
            raise Unreachable(DEAD_ZOOKEEPER, hint=ASK_ALL_THE_SAME)
        if self._trouble is not None and time.monotonic() < self._until_s:
            raise Unreachable(self._trouble, hint=UNKNOWN_SETTINGS_HINT)

    async def zookeeper_trouble(self) -> str | None:
        """Return why ZooKeeper was away. One that was is tried again after a rest; None: it is back, or never was."""
        away = self._away
        if away is not None and time.monotonic() >= away.until_s:
            from engine.admin.cluster.zookeeper import open_zookeeper

            try:
                zk = await open_zookeeper(
                    away.connect, security=away.security, timeout_s=ZOOKEEPER_REST_S, has_brokers=True
                )
            except Unreachable as error:
                self.zookeeper_was_away(away.connect, error, away.security)
            else:
                self.answered()
                self._away = None
                await zk.close()
        return None if self._away is None else self._away.trouble

    def zookeeper_was_away(self, connect: str, error: Unreachable, security: ZkSecurity = OPEN) -> None:
        """Note that klamm tried ZooKeeper itself: it counts as dead, or there is no way to it."""
        is_dead = isinstance(error, ZooKeeperDead)
        until_s = time.monotonic() + ZOOKEEPER_REST_S
        self._away = _AwayZooKeeper(connect, security, f"{error}: {error.where}", is_dead, until_s)
        self.limit_s = math.inf if is_dead else ABSENT_ZOOKEEPER_LIMIT_S

    def not_answered(self, trouble: str) -> None:
        """Note that a broker gave no answer, and what to report about it."""
        self._rest_s = min(self._rest_s * 2, REST_MAX_S)
        self._trouble, self._until_s = trouble, time.monotonic() + self._rest_s

    def answered(self) -> None:
        """Note that a broker, or ZooKeeper itself, gave an answer."""
        self._trouble, self._rest_s, self.limit_s = None, FIRST_REST_S / 2, math.inf


@dataclass(frozen=True, slots=True)
class _AwayZooKeeper:
    connect: str
    security: ZkSecurity
    trouble: str
    is_dead: bool
    until_s: float
    """When it is tried again, by the monotonic clock."""
