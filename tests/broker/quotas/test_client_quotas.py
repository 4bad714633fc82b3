"""Counting and waiting, without a network: windows, owners, bounds, forgetting."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any
from urllib.parse import quote

import pytest
from network_serving import session
from virtual_time import ManualClock

from engine.broker.network.request import NO_RESPONSE, RequestHead, RequestUse
from engine.broker.quotas import client_quotas
from engine.broker.quotas.client_quotas import IDLE_MS_MAX, INT_MAX, UNLIMITED, USERS_MAX, ClientQuotas, MutationQuota
from engine.broker.quotas.limits import NAME_CHARS_MAX
from engine.common.errors import ErrorCode, KafkaError
from engine.common.windowed_rate import Window
from engine.kafka.config.quota_keys import QuotaKey
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import CreateTopicsResponse
from engine.kafka.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from engine.kafka.protocol.apis.metadata import MetadataResponse
from engine.kafka.protocol.apis.produce import ProduceResponse

PRODUCE = {"producer_byte_rate": "1000"}


class World:
    """Quotas with a clock that stands still, and what they told connections."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.announced: list[bool] = []
        self.quotas = ClientQuotas(Window(), Window(), self.clock, self.announced.append)
        self.muted: list[int] = []

    def request(
        self, key: ApiKey = ApiKey.PRODUCE, *, version: int = 9, client_id: str | None = "app", size: int = 0
    ) -> RequestHead:
        request = RequestHead(key, version, 1, client_id, session())
        request.size_bytes, request.use = size, RequestUse()
        request.session.principal = "User:alice"
        request.session.mute = self.muted.append
        return request

    def produce(self, size: int, client_id: str | None = "app") -> int:
        answer = ProduceResponse()
        self.quotas.before_encoding(self.request(size=size, client_id=client_id), answer)
        return int(answer.throttle_time_ms)


def test_what_is_above_ten_seconds_worth_makes_a_producer_wait() -> None:
    w = World()
    w.quotas.update("clients", "app", PRODUCE)
    assert w.produce(10_000) == 0
    assert w.produce(500) == 500
    w.clock.advance(500)
    assert w.produce(0) == 0
    assert w.muted == [500]


def test_counting_begins_with_the_first_quota_and_ends_with_the_last() -> None:
    w = World()
    w.quotas.update("clients", "app", {})
    assert w.announced == []
    w.quotas.update("clients", "app", PRODUCE)
    w.quotas.update("users", "alice", {"request_percentage": "50"})
    w.quotas.update("clients", "app", {})
    assert (w.announced, w.quotas.is_on) == ([True], True)
    w.quotas.update("users", "alice", {})
    assert (w.announced, w.quotas.is_on) == ([True, False], False)
    assert w.quotas.throttle_fetch(w.request(ApiKey.FETCH), 10**9) == 0


def test_a_changed_quota_counts_for_what_was_used_before() -> None:
    w = World()
    w.quotas.update("clients", "app", PRODUCE)
    assert w.produce(10_000) == 0
    w.quotas.update("clients", "app", {"producer_byte_rate": "500"})
    assert w.produce(0) == 10_000


def test_all_client_ids_of_a_user_share_its_quota_and_others_have_their_own() -> None:
    w = World()
    w.quotas.update("users", "alice", PRODUCE)
    w.quotas.update("clients", "<default>", {"producer_byte_rate": "1"})
    assert w.produce(10_000, "a") == 0
    assert w.produce(1000, "b") == 1000
    assert w.produce(1000, None) == 2000


def test_an_unacknowledged_request_is_counted_in_bytes_and_not_in_time() -> None:
    w = World()
    w.quotas.update("users", "alice", {**PRODUCE, "request_percentage": "0.0000001"})
    request = w.request(size=20_000)
    w.quotas.before_encoding(request, NO_RESPONSE)
    assert w.muted == [10_000]


@pytest.mark.parametrize(("percent", "wait_ms"), [("0.0000001", 1000), ("0", 0), ("-5", 0), ("100", 0)])
def test_request_time_makes_nobody_wait_for_more_than_a_sample(percent: str, wait_ms: int) -> None:
    w = World()
    w.quotas.update("users", "<default>", {"request_percentage": percent})
    request, answer = w.request(ApiKey.METADATA), MetadataResponse(brokers=[], topics=[])
    assert request.use is not None
    request.use.begin()
    w.quotas.before_encoding(request, answer)
    assert answer.throttle_time_ms == (1000 if percent == "0" else wait_ms)


def test_brokers_requests_are_nobodys() -> None:
    w = World()
    w.quotas.update("users", "<default>", {"request_percentage": "0.0000001"})
    request, answer = w.request(ApiKey.LEADER_AND_ISR), LeaderAndIsrResponse()
    assert request.use is not None
    request.use.begin()
    w.quotas.before_encoding(request, answer)
    assert w.muted == []


def test_a_throttled_answer_to_a_consumer_is_not_counted() -> None:
    w = World()
    w.quotas.update("clients", "app", {"consumer_byte_rate": "1000"})
    assert w.quotas.fetch_bytes_max(w.request(ApiKey.FETCH)) == 10_000
    assert w.quotas.fetch_bytes_max(w.request(ApiKey.FETCH, client_id="other")) == INT_MAX
    assert w.quotas.throttle_fetch(w.request(ApiKey.FETCH), 9_000) == 0
    assert w.quotas.throttle_fetch(w.request(ApiKey.FETCH), 2_000) == 1_000
    assert w.muted == [1_000]
    w.clock.advance(12_000)
    assert w.quotas.throttle_fetch(w.request(ApiKey.FETCH), 2_000) == 0


@pytest.mark.parametrize("limit", ["0", "-3", str(2**63 - 1)])
def test_nobody_waits_for_bytes_that_can_never_be_allowed(limit: str) -> None:
    """Kafka's arithmetic overflows there; test_quotas_on_kafka shows it."""
    w = World()
    w.quotas.update("clients", "app", {"producer_byte_rate": limit, "consumer_byte_rate": limit})
    assert w.produce(1_000_000) == 0
    assert w.quotas.throttle_fetch(w.request(ApiKey.FETCH), 2_000) == 0


def test_an_absurd_wait_fits_into_its_field() -> None:
    w = World()
    w.quotas.update("clients", "app", {"producer_byte_rate": "1"})
    assert w.produce(2**40) == INT_MAX


@pytest.mark.parametrize("text", ["", "x", "1.5", "NaN", "1e3", "9" * 400, "9" * 5000])
def test_a_value_that_is_no_quota_is_logged_and_holds_no_other_back(text: str, caplog: Any) -> None:
    w = World()
    w.quotas.update("users", "alice", {"producer_byte_rate": text, "request_percentage": "5"})
    assert f"Ignoring producer_byte_rate={text!r} of users/alice" in caplog.text
    assert w.produce(10**9) == 0
    assert w.quotas.is_on


def test_ten_thousand_client_ids_are_bounded() -> None:
    w = World()
    w.quotas.update("clients", "<default>", PRODUCE)
    quota = w.quotas._quotas[QuotaKey.PRODUCE]
    w.produce(100_000, "waits")
    for number in range(3 * USERS_MAX):
        if number % USERS_MAX == 0:
            w.clock.advance(12_000)
        w.produce(1, f"client-{number}")
        assert len(quota) <= USERS_MAX + 1
        assert len(quota._found) <= USERS_MAX
    w.clock.advance(IDLE_MS_MAX + 1)
    w.quotas.forget_idle()
    assert len(quota) == 0


def test_names_as_long_as_the_protocol_allows_cost_little() -> None:
    w, clients = World(), 200
    w.quotas.update("clients", "<default>", PRODUCE)
    tracemalloc.start()
    for number in range(clients):
        w.produce(11_000, f"{number}".ljust(32_767, "x"))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 4_000 * clients
    names = [client.client_id for client in w.quotas.usage()]
    assert len(set(names)) == clients and max(map(len, names)) == NAME_CHARS_MAX


def test_long_names_have_quotas_of_their_own() -> None:
    w = World()
    long, longer = "x" * 300, "x" * 301
    w.quotas.update("clients", long, PRODUCE)
    w.quotas.update("users", f"alice/clients/{quote('é' * 300)}", {"producer_byte_rate": "500"})
    assert [w.produce(11_000, name) for name in (long, longer, "é" * 300)] == [1_000, 0, 12_000]


def test_client_ids_beyond_the_most_share_what_one_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "USERS_MAX", 200)
    monkeypatch.setattr(client_quotas, "ACCOUNTS_MAX", 300)
    w = World()
    w.quotas.update("clients", "<default>", PRODUCE)
    for number in range(300):
        assert w.produce(10_000, f"client-{number}") == 0
    waits = [w.produce(10_000, f"more-{number}") for number in range(3)]
    assert waits == [0, 10_000, 20_000]
    assert len(w.quotas._quotas[QuotaKey.PRODUCE]) == 301
    assert w.produce(1_000, "client-7") == 1_000
    w.quotas.update("users", "<default>", PRODUCE)
    # Others of their kind, who are counted by users now.
    assert [w.produce(10_000, f"again-{number}") for number in range(2)] == [0, 10_000]
    assert len(w.quotas._quotas[QuotaKey.PRODUCE]) == 302


def test_a_client_that_a_quota_names_never_shares_it_with_those_beyond_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_quotas, "USERS_MAX", 2)
    monkeypatch.setattr(client_quotas, "ACCOUNTS_MAX", 3)
    w = World()
    w.quotas.update("clients", "<default>", PRODUCE)
    w.quotas.update("clients", "named", {"producer_byte_rate": "10000"})
    for number in range(20):
        w.produce(10_000, f"client-{number}")
    assert [w.produce(100_000, "named"), w.produce(10_000, "named")] == [0, 1_000]
    assert w.produce(10_000, "another") == 10_000 * 17


def test_who_has_to_wait_is_not_forgotten() -> None:
    w = World()
    w.quotas.update("clients", "<default>", PRODUCE)
    w.produce(10_000_000, "waits")
    w.clock.advance(IDLE_MS_MAX + 1)
    w.quotas.forget_idle()
    assert [(client.client_id, client.throttled_ms > 0) for client in w.quotas.usage()] == [("waits", True)]


def test_usage_tells_the_limit_the_rate_and_the_wait() -> None:
    w = World()
    w.quotas.update("users", "alice", {**PRODUCE, "controller_mutation_rate": "2"})
    w.produce(15_000)
    w.quotas.mutation_quota(w.request(ApiKey.CREATE_TOPICS, version=7), strict_since=6).record(24)
    usages = {
        client.key: (client.user, client.client_id, client.limit, round(client.used), client.throttled_ms)
        for client in w.quotas.usage()
    }
    assert usages == {
        QuotaKey.PRODUCE: ("alice", "", 1000.0, 1500, 5000),
        QuotaKey.CONTROLLER_MUTATION: ("alice", "", 2.0, 2, 1000),
    }


class TestFigures:
    """Kafka's MBeans ``kafka.server:type=Produce|Fetch|Request|ControllerMutation``."""

    def figures(self, w: World) -> dict[tuple[str, str, str], dict[str, float]]:
        return {(kind, user, client_id): values for kind, user, client_id, values in w.quotas.figures()}

    def test_each_who_shares_a_quota_has_a_rate_and_a_mean_throttle_time(self) -> None:
        w = World()
        w.quotas.update("clients", "app", PRODUCE)
        assert set(self.figures(w)) == {
            (kind, "", "") for kind in ("Produce", "Fetch", "Request", "ControllerMutation")
        }
        w.produce(12_000)
        w.produce(2_000)
        figures = self.figures(w)
        assert figures["Produce", "", "app"] == {"byte-rate": 1400.0, "throttle-time": 3000.0}
        assert figures["Produce", "", ""] == {"queue-size": 2.0}
        assert w.quotas.throttles[ApiKey.PRODUCE].total == 6000
        w.clock.advance(3000)
        assert self.figures(w)["Produce", "", ""] == {"queue-size": 1.0}
        w.clock.advance(60_000)
        figures = self.figures(w)
        assert figures["Produce", "", ""] == {"queue-size": 0.0}
        assert figures["Produce", "", "app"]["byte-rate"] == 0.0
        assert math.isnan(figures["Produce", "", "app"]["throttle-time"])

    def test_those_who_wait_come_first_and_who_is_left_out_is_counted(self) -> None:
        w = World()
        w.quotas.update("clients", "<default>", PRODUCE)
        for number in range(50):
            w.produce(12_000 if number % 20 == 19 else 100, f"client-{number}")
        clients = [client_id for kind, _, client_id, _ in w.quotas.figures(5) if kind == "Produce" and client_id]
        assert clients == ["client-19", "client-39", "client-0", "client-1", "client-2"]
        assert w.quotas.accounts_beyond(5) == 45
        assert w.quotas.accounts_beyond(50) == 0

    def test_a_client_without_a_quota_is_counted_while_others_have_one(self) -> None:
        w = World()
        w.quotas.update("users", "bob", PRODUCE)
        assert w.produce(10**9, "free") == 0
        assert self.figures(w)["Produce", "alice", ""]["byte-rate"] == 10**8
        w.quotas.update("clients", "x", PRODUCE)
        w.produce(10, "free")
        assert self.figures(w)["Produce", "", "free"]["byte-rate"] == 1.0
        assert [client.user for client in w.quotas.usage()] == []

    def test_names_are_kafkas(self) -> None:
        w = World()
        w.quotas.update("users", "a%20b", {"request_percentage": "0.0000001", "controller_mutation_rate": "2"})
        request = w.request(ApiKey.CREATE_TOPICS, version=7)
        request.session.principal = "User:a b"
        quota = w.quotas.mutation_quota(request, strict_since=6)
        quota.record(26)
        with pytest.raises(KafkaError):
            quota.record(1)
        assert request.use is not None
        request.use.begin()
        w.quotas.before_encoding(request, CreateTopicsResponse())
        figures = self.figures(w)
        assert figures["ControllerMutation", "a%20b", ""] == {
            "mutation-rate": pytest.approx(26 / 30),
            "tokens": -4.0,
            "throttle-time": 2000.0,
        }
        assert figures["ControllerMutation", "", ""] == {"queue-size": 1.0}
        assert figures["Request", "a%20b", ""]["request-time"] > 0

    def test_a_client_without_an_id_where_only_ids_have_quotas_is_the_kinds_own(self) -> None:
        w = World()
        w.quotas.update("clients", "app", PRODUCE)
        w.produce(1000, None)
        assert self.figures(w)["Produce", "", ""]["byte-rate"] == 100.0

    @pytest.mark.parametrize(("api_key", "answer"), [(ApiKey.FETCH, None), (ApiKey.PRODUCE, NO_RESPONSE)])
    def test_time_of_brokers_and_of_acks_0_is_exempt(self, api_key: ApiKey, answer: object) -> None:
        w = World()
        w.quotas.update("users", "<default>", {"request_percentage": "50"})
        request = w.request(api_key)
        request.session.is_follower = api_key is ApiKey.FETCH
        assert request.use is not None
        request.use.begin()
        w.quotas.before_encoding(request, answer)
        assert self.figures(w)["Request", "", ""]["exempt-request-time"] > 0

    def test_clients_without_a_quota_never_take_the_place_of_those_with_one(self) -> None:
        w = World()
        w.quotas.update("clients", "app", PRODUCE)
        for number in range(2 * USERS_MAX):
            w.produce(1, f"client-{number}")
        assert len(w.quotas._quotas[QuotaKey.PRODUCE]) == USERS_MAX
        w.produce(12_000)
        assert w.muted == [2000]


class TestMutations:
    def test_a_strict_quota_lets_one_request_go_into_debt_and_refuses_the_next(self) -> None:
        w = World()
        w.quotas.update("clients", "app", {"controller_mutation_rate": "2"})
        request = w.request(ApiKey.CREATE_TOPICS, version=7)
        quota = w.quotas.mutation_quota(request, strict_since=6)
        quota.record(22)
        quota.record(4)
        with pytest.raises(KafkaError) as refused:
            quota.record(1)
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        w.clock.advance(500)
        answer = CreateTopicsResponse()
        w.quotas.before_encoding(request, answer)
        # Four are owed, which takes two seconds; the request has waited for half of one.
        assert (answer.throttle_time_ms, w.muted) == (1500, [1500])
        w.clock.advance(1500)
        quota.record(1)

    def test_a_permissive_quota_lets_pass_and_makes_the_client_wait(self) -> None:
        w = World()
        w.quotas.update("clients", "app", {"controller_mutation_rate": "2"})
        request = w.request(ApiKey.CREATE_TOPICS, version=5)
        quota = w.quotas.mutation_quota(request, strict_since=6)
        for _ in range(3):
            quota.record(10)
        answer = CreateTopicsResponse()
        w.quotas.before_encoding(request, answer)
        assert answer.throttle_time_ms == 4000

    def test_what_happens_on_the_way_makes_nobody_wait(self) -> None:
        w = World()
        w.quotas.update("clients", "app", {"controller_mutation_rate": "2"})
        request = w.request(ApiKey.METADATA)
        quota = w.quotas.mutation_quota(request, strict_since=None)
        quota.record(100)
        answer = MetadataResponse(brokers=[], topics=[])
        w.quotas.before_encoding(request, answer)
        assert isinstance(quota, MutationQuota) and quota.throttle_ms > 0
        assert answer.throttle_time_ms == 0

    def test_without_a_quota_there_is_no_limit(self) -> None:
        w = World()
        request = w.request(ApiKey.CREATE_TOPICS, version=7)
        assert w.quotas.mutation_quota(request, strict_since=6) is UNLIMITED
        w.quotas.update("clients", "other", {"controller_mutation_rate": "2"})
        quota = w.quotas.mutation_quota(request, strict_since=6)
        for _ in range(2):
            quota.record(10**9)
        assert isinstance(quota, MutationQuota) and quota.throttle_ms == 0
