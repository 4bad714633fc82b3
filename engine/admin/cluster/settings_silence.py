"""Whether brokers may be asked for what they read from ZooKeeper: settings of topics, quotas, credentials.

A broker of Apache Kafka keeps one of its request threads (``num.io.threads``, eight) for such a question until
ZooKeeper answers. While ZooKeeper stands still, eight questions make it deaf to everybody, its producers too. So after
a question without an answer klamm waits a while before it asks again, and if ZooKeeper itself was silent it does not
ask at all. A ZooKeeper that klamm cannot reach is another matter: brokers may reach it. One question with a short limit
tells.
"""

from __future__ import annotations

import math
import time

from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.remedies import Operation, Phrase

FIRST_REST_S, REST_MAX_S = 30.0, 3600.0
"""How long not to ask after the first silence, and at most: each silence doubles it."""
ABSENT_ZOOKEEPER_LIMIT_S = 5.0
"""How long an answer may take if klamm itself cannot reach ZooKeeper: a broker that can answers at once."""

UNKNOWN_SETTINGS_HINT = Phrase("brokers read them from ZooKeeper: is it up? ", Operation.CHECK_ZOOKEEPER, " tells")


class SettingsSilence:
    """What is known of brokers' silence. All connections of a command share one, because it may ask repeatedly."""

    def __init__(self) -> None:
        self._trouble: str | None = None
        self._rest_s = FIRST_REST_S / 2
        self._until_s = -math.inf
        self.limit_s = math.inf
        """How long an answer may take at most."""

    def check(self) -> None:
        """Raise Unreachable if it is too soon to ask again."""
        if self._trouble is not None and time.monotonic() < self._until_s:
            raise Unreachable(self._trouble, hint=UNKNOWN_SETTINGS_HINT)

    def zookeeper_was_away(self, *, is_silent: bool) -> None:
        """Note that ZooKeeper itself was silent or could not be reached."""
        if is_silent:
            self._trouble, self._until_s = "not asked for, since brokers read them from ZooKeeper", math.inf
        else:
            self.limit_s = ABSENT_ZOOKEEPER_LIMIT_S

    def not_answered(self, trouble: str) -> None:
        """Note that a broker gave no answer, and what to report about it."""
        self._rest_s = min(self._rest_s * 2, REST_MAX_S)
        self._trouble, self._until_s = trouble, time.monotonic() + self._rest_s

    def answered(self) -> None:
        """Note that a broker, or ZooKeeper itself, gave an answer."""
        self._trouble, self._rest_s, self.limit_s = None, FIRST_REST_S / 2, math.inf
