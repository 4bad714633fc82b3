"""Whether brokers may be asked for what they read from ZooKeeper: settings of topics, quotas, credentials.

A broker of Apache Kafka keeps one of its request threads (``num.io.threads``, eight) for such a question until
ZooKeeper answers. While ZooKeeper stands still, eight questions make it deaf to everybody, its producers too. So who
got no answer does not ask again for a while, and who found ZooKeeper dead does not ask at all. A ZooKeeper to which no
way leads is another matter: brokers may reach it. One question tells, and it is not waited for long.
"""

from __future__ import annotations

import math
import time

from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.remedies import Give, Operation, Parameter, Phrase

FIRST_REST_S, REST_MAX_S = 30.0, 3600.0
"""How long nobody is asked after the first silence, and at most: each silence doubles it."""
ABSENT_ZOOKEEPER_LIMIT_S = 5.0
"""How long an answer may take where klamm itself could not reach ZooKeeper: a broker that can answers at once."""

UNKNOWN_SETTINGS_HINT = Phrase("brokers read them from ZooKeeper: is it up? ", Operation.CHECK_ZOOKEEPER, " tells")
DEAD_ZOOKEEPER = "brokers were not asked, for they read this from ZooKeeper, which seems to be dead"
ASK_ALL_THE_SAME = Phrase(
    Give(Parameter.VIA, "wire"),
    " asks the brokers all the same: each question may keep one of a broker's request threads until ZooKeeper is back",
)


class SettingsSilence:
    """What is known of that. One for all connections of a command, which may look again and again."""

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
        """Note that ZooKeeper itself was looked for, and either counts as dead or no way leads there."""
        if is_dead:
            self._trouble, self._hint, self._until_s = DEAD_ZOOKEEPER, ASK_ALL_THE_SAME, math.inf
        else:
            self.limit_s = ABSENT_ZOOKEEPER_LIMIT_S

    def not_answered(self, trouble: str) -> None:
        """Note that a broker gave no answer, and what is reported about that."""
        self._rest_s = min(self._rest_s * 2, REST_MAX_S)
        self._trouble, self._hint, self._until_s = trouble, UNKNOWN_SETTINGS_HINT, time.monotonic() + self._rest_s

    def answered(self) -> None:
        """Note that a broker, or ZooKeeper itself, gave an answer."""
        self._trouble, self._rest_s, self.limit_s = None, FIRST_REST_S / 2, math.inf
