"""Whether brokers may be asked for what they read from ZooKeeper: settings of topics, quotas, credentials.

A broker of Apache Kafka keeps one of its request threads (``num.io.threads``, eight) for such a question until
ZooKeeper answers. While ZooKeeper stands still, eight questions make it deaf to everybody, producers too. So after
a question without an answer klamm waits before it asks again, and if ZooKeeper itself is dead it does not ask at
all. If there is no way from klamm to ZooKeeper, the brokers may still reach it: klamm asks one question with a short
limit.
"""

from __future__ import annotations

import math
import time

from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.remedies import Give, Operation, Parameter, Phrase

FIRST_REST_S, REST_MAX_S = 30.0, 3600.0
"""How long not to ask after the first silence, and at most: each silence doubles it."""
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
        self._hint = UNKNOWN_SETTINGS_HINT
        self._rest_s = FIRST_REST_S / 2
        self._until_s = -math.inf
        self.limit_s = math.inf
        """How long an answer may take at most."""

    def check(self) -> None:
        """Raise Unreachable if it is too soon to ask again."""
        if self._trouble is not None and time.monotonic() < self._until_s:
            raise Unreachable(self._trouble, hint=self._hint)

    def zookeeper_was_away(self, *, is_dead: bool) -> None:
        """Note that klamm tried ZooKeeper itself: it counts as dead, or there is no way to it."""
        if is_dead:
            self._trouble, self._hint, self._until_s = DEAD_ZOOKEEPER, ASK_ALL_THE_SAME, math.inf
        else:
            self.limit_s = ABSENT_ZOOKEEPER_LIMIT_S

    def not_answered(self, trouble: str) -> None:
        """Note that a broker gave no answer, and what to report about it."""
        self._rest_s = min(self._rest_s * 2, REST_MAX_S)
        self._trouble, self._hint, self._until_s = trouble, UNKNOWN_SETTINGS_HINT, time.monotonic() + self._rest_s

    def answered(self) -> None:
        """Note that a broker, or ZooKeeper itself, gave an answer."""
        self._trouble, self._rest_s, self.limit_s = None, FIRST_REST_S / 2, math.inf
