"""Enforces the quotas of users and client ids on one broker, as Kafka 3.9 does.

A client that has used more than its share is answered at once, is told to wait (``throttle_time_ms``), and nothing
more is read from its connection for that time (KIP-219). Counting begins with the first quota: without any, requests
do not come here.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from engine.broker.metrics.measures import Occasional
from engine.broker.network.request import NO_RESPONSE, RequestHead
from engine.broker.quotas.limits import Limits, Owner, entity_of, known_as
from engine.common.clock import Clock
from engine.common.errors import ErrorCode, KafkaError
from engine.common.windowed_rate import METRICS_WINDOW, TokenBucket, Window, WindowedAverage, WindowedRate
from engine.kafka.config.quota_keys import CLIENT_QUOTAS, QuotaKey, parse_quota
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.zk.configs import sanitized

logger = logging.getLogger("kafka.server.ClientQuotaManager")

IDLE_MS_MAX: Final = 3600 * 1000
"""What a client used is forgotten after an hour of silence."""

USERS_MAX: Final = 10_000
"""From this many clients on, those with nothing left in the window are forgotten first."""

ACCOUNTS_MAX: Final = 50_000
"""As many clients are counted one by one, some 30 MB of each kind; those who come then are counted together, but for
those whose quota names them: administrators do not write so many."""

_OTHERS: Final = "..."
"""Their name."""

INT_MAX: Final = 2**31 - 1

NO_LIMIT: Final = float(2**63 - 1)
"""The limit of a client that has none while others have one: it is counted too, as in Kafka."""


_GROUPS: Final = {
    QuotaKey.PRODUCE: "Produce",
    QuotaKey.FETCH: "Fetch",
    QuotaKey.REQUEST: "Request",
    QuotaKey.CONTROLLER_MUTATION: "ControllerMutation",
}
"""Kafka's names of the kinds."""

_NOBODY: Final = Owner("", "")
"""Clients without a client id where only client ids have quotas."""

EXEMPT: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
    }
)
"""Requests of brokers: no client is charged for their time, nor for that of a Produce without an answer."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of one quota its owner uses on this broker. ``throttled_ms``: how long it still has to wait."""

    key: QuotaKey
    user: str
    client_id: str
    limit: float
    used: float
    throttled_ms: int


class _Account:
    """What one owner has used of one quota."""

    __slots__ = ("counter", "mutations", "owner", "throttle_ms", "throttled_until_ms")

    def __init__(self, owner: Owner, key: QuotaKey, window: Window, metrics_window: Window, now_ms: int) -> None:
        self.owner = owner
        self.counter: Any
        self.mutations: WindowedRate | None = None
        """The rate of what is limited by tokens."""
        if key is QuotaKey.CONTROLLER_MUTATION:
            self.counter = TokenBucket(window, now_ms)
            self.mutations = WindowedRate(metrics_window, now_ms)
        else:
            self.counter = WindowedRate(window, now_ms)
        self.throttled_until_ms = 0
        self.throttle_ms = WindowedAverage(metrics_window)


class _Quota:
    """One kind of quota: its limits, and what those who have one have used."""

    def __init__(self, key: QuotaKey, window: Window, metrics_window: Window) -> None:
        self.key = key
        self.limits = Limits()
        self.window = window
        self._metrics_window = metrics_window
        self._accounts: dict[Owner, _Account] = {}
        self._found: dict[Owner, tuple[_Account, float] | None] = {}
        """Each client's account and limit, until a quota changes."""
        self._crowded_until_ms = 0
        self._throttled_until_ms: list[int] = []
        """A heap: when each throttled connection may continue."""

    def __len__(self) -> int:
        return len(self._accounts)

    def throttle(self, account: _Account, throttle_ms: int, now_ms: int) -> None:
        """Note that a connection of this owner is throttled from now on."""
        account.throttle_ms.record(throttle_ms, now_ms)
        self.queue_size(now_ms)
        heapq.heappush(self._throttled_until_ms, now_ms + throttle_ms)

    def queue_size(self, now_ms: int) -> int:
        """Return how many connections are throttled now."""
        while self._throttled_until_ms and self._throttled_until_ms[0] <= now_ms:
            heapq.heappop(self._throttled_until_ms)
        return len(self._throttled_until_ms)

    def set(self, entity: tuple[str | None, str | None], limit: float | None) -> bool:
        changed = self.limits.set(entity, limit)
        if changed:
            self._found.clear()
        return changed

    def account_of(self, user: str, client_id: str, now_ms: int) -> tuple[_Account, float] | None:
        client = Owner(user, client_id)
        if client in self._found:
            return self._found[client]
        if len(self._found) >= USERS_MAX:
            self._found.clear()
        account_and_limit = None
        if self.limits:
            owner, limit = self.limits.of(user, client_id) or (self.limits.shared_by(user, client_id), NO_LIMIT)
            account = self._accounts.get(owner)
            if account is None and len(self._accounts) >= USERS_MAX:
                self._make_room(now_ms)
                is_own = self.limits.is_set_for(owner)
                if limit != NO_LIMIT and not is_own and len(self._accounts) >= ACCOUNTS_MAX:
                    owner = Owner(owner.user, _OTHERS) if owner.client_id else Owner(_OTHERS, "")
                    account = self._accounts.get(owner)
            if account is None and (limit != NO_LIMIT or len(self._accounts) < USERS_MAX):
                account = self._accounts[owner] = _Account(owner, self.key, self.window, self._metrics_window, now_ms)
            account_and_limit = None if account is None else (account, limit)
        self._found[client] = account_and_limit
        return account_and_limit

    def _make_room(self, now_ms: int) -> None:
        """Forget the clients that have nothing in the window. To look at all costs too much for every newcomer."""
        if now_ms >= self._crowded_until_ms:
            self._crowded_until_ms = now_ms + self.window.sample_ms
            self.forget_idle(now_ms, self.window.whole_ms)

    def forget_idle(self, now_ms: int, idle_ms: int) -> None:
        """Forget those who have used nothing for this long and need not wait."""
        idle = [
            owner
            for owner, account in self._accounts.items()
            if now_ms - account.counter.last_ms > idle_ms and account.throttled_until_ms <= now_ms
        ]
        for owner in idle:
            del self._accounts[owner]
        if idle:
            self._found.clear()

    def usage(self, now_ms: int) -> list[Usage]:
        usages = []
        for owner, account in self._accounts.items():
            limited = self.limits.of(*owner)
            if limited is None:
                continue
            limit = limited[1]
            wait_ms = max(0, account.throttled_until_ms - now_ms)
            if isinstance(account.counter, TokenBucket):
                burst = limit * self.window.whole_ms / 1000
                used = (burst - account.counter.tokens(limit, now_ms)) * 1000 / self.window.whole_ms
                wait_ms = round(min(INT_MAX, account.counter.ms_until(limit, now_ms)))
            else:
                used = account.counter.per_second(now_ms)
            usages.append(Usage(self.key, owner.user, owner.client_id, limit, used, wait_ms))
        return usages

    def figures(self, now_ms: int, most: int | None) -> Iterator[tuple[Owner, dict[str, float]]]:
        """Yield the attributes of each owner's MBean; if there are more than ``most``, first of those who had to wait.

        The others come by age, so that they are the same from page to page.
        """
        shown = list(self._accounts.items())
        if most is not None and len(shown) > most:
            since_ms = max(0, now_ms - self.window.whole_ms)
            waited = [entry for entry in shown if entry[1].throttled_until_ms > since_ms][:most]
            others = (entry for entry in shown if entry[1].throttled_until_ms <= since_ms)
            shown = [*waited, *islice(others, most - len(waited))]
        for owner, account in shown:
            attributes = {"throttle-time": account.throttle_ms.value(now_ms)}
            if account.mutations is not None:
                limited = self.limits.of(*owner)
                limit = NO_LIMIT if limited is None else limited[1]
                attributes["mutation-rate"] = account.mutations.per_second(now_ms)
                attributes["tokens"] = account.counter.tokens(limit, now_ms)
            else:
                name = "request-time" if self.key is QuotaKey.REQUEST else "byte-rate"
                attributes[name] = account.counter.per_second(now_ms)
            yield owner, attributes


class MutationQuota:
    """What one request may still change in the cluster (KIP-599).

    A strict quota refuses what comes while tokens are owed; a permissive one, for clients too old to know the refusal,
    lets it pass and makes the client wait. Neither refuses a request for being large.
    """

    def __init__(self, bucket: TokenBucket, rate: WindowedRate, limit: float, clock: Clock, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._rate = rate
        self._limit = limit
        self._clock = clock
        self._is_strict = is_strict
        self._until_ms = 0.0

    def record(self, partitions: int) -> None:
        """Count partitions that are about to be made or deleted.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED; nothing is counted.
        """
        now_ms = self._clock.monotonic_ms()
        wait_ms = self._bucket.ms_until(self._limit, now_ms)
        if not (self._is_strict and wait_ms > 0):
            self._bucket.record(partitions, self._limit, now_ms)
            self._rate.record(partitions, now_ms)
            if self._is_strict:
                return
            wait_ms = self._bucket.ms_until(self._limit, now_ms)
        if wait_ms > 0:
            self._until_ms = now_ms + round(min(wait_ms, INT_MAX))
            if self._is_strict:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    @property
    def throttle_ms(self) -> int:
        """What is left of the time to wait; a request may have waited for leaders since."""
        return max(0, int(self._until_ms - self._clock.monotonic_ms()))


class Unlimited:
    """What a client without a quota may change."""

    def record(self, partitions: int) -> None:
        """Let it pass."""


UNLIMITED: Final = Unlimited()


class ClientQuotas:
    """All quotas of users and client ids on one broker. ``announce`` is called when counting begins and ends."""

    def __init__(
        self,
        window: Window,
        controller_window: Window,
        clock: Clock,
        announce: Callable[[bool], None] = lambda is_on: None,
        metrics_window: Window = METRICS_WINDOW,
    ) -> None:
        self._clock = clock
        self._announce = announce
        self._request_wait_ms_max = window.sample_ms
        self._quotas = {
            key: _Quota(key, controller_window if key is QuotaKey.CONTROLLER_MUTATION else window, metrics_window)
            for key in CLIENT_QUOTAS
        }
        self.is_on = False
        self.throttles: dict[int, Occasional] = {}
        """By API key."""
        self._exempt = WindowedRate(metrics_window, clock.monotonic_ms())

    def update(self, folder: str, name: str, texts: Mapping[str, str]) -> None:
        """Take what ``/config/users/<name>`` or ``/config/clients/<name>`` holds; log what cannot be used, and why."""
        entity = entity_of(folder, name)
        for key, quota in self._quotas.items():
            limit = None
            if key in texts:
                try:
                    limit = parse_quota(key, texts[key])
                except ValueError:
                    logger.warning("Ignoring %s=%r of %s/%s: not a number it can have", key, texts[key], folder, name)
                    continue
                if limit <= 0:
                    logger.warning("%s=%s of %s/%s: no quota can be met there", key, texts[key], folder, name)
            if quota.set(entity, limit):
                logger.info("Changing %s of %s/%s to %s", key, folder, name, limit)
        is_on = any(quota.limits for quota in self._quotas.values())
        if is_on is not self.is_on:
            self.is_on = is_on
            self._announce(is_on)

    def forget_idle(self) -> None:
        """Forget clients that have been silent for ``IDLE_MS_MAX``."""
        for quota in self._quotas.values():
            quota.forget_idle(self._clock.monotonic_ms(), IDLE_MS_MAX)

    def usage(self) -> list[Usage]:
        """Return the use of every quota that was used lately."""
        now_ms = self._clock.monotonic_ms()
        return [usage for quota in self._quotas.values() for usage in quota.usage(now_ms)]

    def accounts_beyond(self, most: int) -> int:
        """Return how many clients ``figures`` leaves out, of all kinds together."""
        return sum(max(0, len(quota) - most) for quota in self._quotas.values())

    def figures(self, most: int | None = None) -> Iterator[tuple[str, str, str, dict[str, float]]]:
        """Yield kind, user, client id and attributes of each of Kafka's MBeans; user and client id may be ``""``.

        ``most``: of so many clients of each kind at most.
        """
        now_ms = self._clock.monotonic_ms()
        for key, quota in self._quotas.items():
            total = {"queue-size": float(quota.queue_size(now_ms))}
            if key is QuotaKey.REQUEST:
                total["exempt-request-time"] = self._exempt.per_second(now_ms)
            for owner, attributes in quota.figures(now_ms, most):
                if owner == _NOBODY:
                    total |= attributes
                else:
                    yield _GROUPS[key], sanitized(owner.user), owner.client_id, attributes
            yield _GROUPS[key], "", "", total

    # What handlers ask.

    def fetch_bytes_max(self, request: RequestHead) -> int:
        """Return how much one answer may hold: more would be throttled even after a silence."""
        quota = self._quotas[QuotaKey.FETCH]
        account_and_limit = quota.account_of(*_client(request), self._clock.monotonic_ms())
        if not account_and_limit:
            return INT_MAX
        return max(
            0, int(min(INT_MAX, account_and_limit[1] * (quota.window.samples - 1) * quota.window.sample_ms / 1000))
        )

    def throttle_fetch(self, request: RequestHead, size_bytes: int) -> int:
        """Count the answer to a consumer; return for how many milliseconds it gets an empty one instead."""
        if not self.is_on:
            return 0
        now_ms = self._clock.monotonic_ms()
        request_ms = self._count(QuotaKey.REQUEST, request, _percent(request), now_ms)
        bytes_ms = self._count(QuotaKey.FETCH, request, size_bytes, now_ms)
        throttle_ms = max(request_ms, bytes_ms)
        if throttle_ms > 0:
            # It is not sent.
            self._count(QuotaKey.FETCH, request, -size_bytes, now_ms)
            self._throttle(QuotaKey.FETCH if bytes_ms > request_ms else QuotaKey.REQUEST, request, throttle_ms, now_ms)
        return throttle_ms

    def mutation_quota(self, request: RequestHead, *, strict_since: int | None) -> MutationQuota | Unlimited:
        """Return what a request may change in the cluster.

        Args:
            strict_since: the first version whose clients know THROTTLING_QUOTA_EXCEEDED; None: they ask for something
                else, do not know of the change, and do not wait for it.
        """
        account_and_limit = self.is_on and self._quotas[QuotaKey.CONTROLLER_MUTATION].account_of(
            *_client(request), self._clock.monotonic_ms()
        )
        if not account_and_limit:
            return UNLIMITED
        is_strict = strict_since is not None and request.api_version >= strict_since
        account, limit = account_and_limit
        assert account.mutations is not None, "tokens come with a rate"
        quota = MutationQuota(account.counter, account.mutations, limit, self._clock, is_strict=is_strict)
        if request.use is not None and strict_since is not None:
            request.use.mutations = quota
        return quota

    # What the network shows.

    def before_encoding(self, request: RequestHead, answer: Any) -> None:
        """Count a request when its answer is there, tell the client how long to wait, and mute its connection."""
        api_key = request.api_key
        now_ms = self._clock.monotonic_ms()
        if api_key == ApiKey.FETCH or api_key in EXEMPT:
            if (api_key != ApiKey.FETCH or request.session.is_follower) and self._quotas[QuotaKey.REQUEST].limits:
                self._exempt.record(_percent(request), now_ms)
            return
        key, throttle_ms = QuotaKey.REQUEST, 0
        if answer is not NO_RESPONSE:
            throttle_ms = self._count(QuotaKey.REQUEST, request, _percent(request), now_ms)
        elif self._quotas[QuotaKey.REQUEST].limits:
            self._exempt.record(_percent(request), now_ms)
        if api_key == ApiKey.PRODUCE:
            bytes_ms = self._count(QuotaKey.PRODUCE, request, request.size_bytes, now_ms)
            if bytes_ms > throttle_ms:
                key, throttle_ms = QuotaKey.PRODUCE, bytes_ms
        mutations = None if request.use is None else request.use.mutations
        if mutations is not None and mutations.throttle_ms > throttle_ms:
            key, throttle_ms = QuotaKey.CONTROLLER_MUTATION, mutations.throttle_ms
        if hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = throttle_ms
        if throttle_ms > 0:
            self._throttle(key, request, throttle_ms, now_ms)

    def _throttle(self, key: QuotaKey, request: RequestHead, throttle_ms: int, now_ms: int) -> None:
        """Mute a connection because of this quota, and note that."""
        quota = self._quotas[key]
        account_and_limit = quota.account_of(*_client(request), now_ms)
        if account_and_limit is not None:
            quota.throttle(account_and_limit[0], throttle_ms, now_ms)
        throttles = self.throttles.get(request.api_key)
        if throttles is None:
            throttles = self.throttles[request.api_key] = Occasional()
        throttles.add(throttle_ms)
        request.session.mute(throttle_ms)

    def _count(self, key: QuotaKey, request: RequestHead, amount: float, now_ms: int) -> int:
        """Count what a client has used; return for how many milliseconds it has to wait."""
        account_and_limit = self._quotas[key].account_of(*_client(request), now_ms)
        if account_and_limit is None:
            return 0
        account, limit = account_and_limit
        account.counter.record(amount, now_ms)
        wait_ms = account.counter.ms_until(limit, now_ms)
        if key is QuotaKey.REQUEST:
            wait_ms = min(wait_ms, self._request_wait_ms_max)
        if wait_ms <= 0 or amount < 0 or wait_ms == math.inf:
            # Kafka's arithmetic overflows where nothing at all is allowed, so no client waits.
            return 0
        throttle_ms: int = round(min(wait_ms, INT_MAX))
        account.throttled_until_ms = max(account.throttled_until_ms, now_ms + throttle_ms)
        return throttle_ms


def _client(request: RequestHead) -> Owner:
    # The name of a principal follows its type: "User:alice".
    return Owner(known_as(request.session.principal.partition(":")[2]), known_as(request.client_id or ""))


def _percent(request: RequestHead) -> float:
    """Return the time that a request kept the event loop, in percent of a second."""
    return 0.0 if request.use is None else request.use.held_ns / 1e7
