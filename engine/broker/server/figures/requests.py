"""Requests: how many, how long, how large, and what was wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, TypeVar

from engine.broker.metrics.mbean import MBean, MBeans
from engine.broker.metrics.measures import Ledger, Meter
from engine.broker.metrics.requests import FROM_CONSUMER, FROM_FOLLOWER, ApiMetrics, RequestSums, RequestTimes
from engine.broker.network.routes import Route
from engine.broker.server.figures.measured import MeasuredBroker
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import request_class
from engine.runtime.turns import Breather

T = TypeVar("T")

SAMPLE_S: Final = 1
"""Seconds between two looks at the newest requests."""


class RequestFigures:
    def __init__(self, server: MeasuredBroker, ledger: Ledger) -> None:
        self._server = server
        self._ledger = ledger
        self._seen: dict[RequestTimes, int] = {}
        """Their requests when the newest were last taken in."""
        self._apis: dict[str, ApiMetrics] = {}
        self._versions: dict[tuple[str, int], Meter] = {}
        self._deprecated: dict[tuple[str, int, str, str], Meter] = {}

    def fold(self) -> None:
        """Add up what connections have noted, which they only add to."""
        for _, times in self._all_times():
            if times.new_requests or times.new_answers:
                times.fold()

    async def sample(self, now_s: float, breather: Breather) -> None:
        """Take in the newest requests that are folded."""
        for route in self._server.routes():
            for times in {route.times, route.follower_times}:
                requests = times.requests
                times.choose_interval((requests - self._seen.get(times, requests)) / SAMPLE_S)
                self._seen[times] = requests
        for name, times in self._all_times():
            if times.sizes or times.waits:
                self._api(name).take(times, now_s)
                await breather.give_way()
        self._take_few(now_s)

    def count(self, now_s: float) -> None:
        """Bring the meters to what connections have counted."""
        requests: Counter[tuple[str, int]] = Counter()
        for name, version, times in self._all_versions():
            for each in _with_kind(name):
                requests[each, version] += times.requests
        for of_version, count in requests.items():
            self._meter(self._versions, of_version, now_s).count = count
        deprecated: Counter[tuple[str, int, str, str]] = Counter()
        for route in self._server.routes():
            for (software, its_version, is_follower), count in (route.deprecated or {}).items():
                for name in _with_kind(_api_name(route, is_follower=is_follower)):
                    deprecated[name, route.api_version, software, its_version] += count
        for of_software, count in deprecated.items():
            self._meter(self._deprecated, of_software, now_s).count = count
        self._count_errors(now_s)

    def _meter(self, meters: dict[T, Meter], key: T, now_s: float) -> Meter:
        meter = meters.get(key)
        if meter is None:
            meter = meters[key] = Meter("requests", now_s, max(0, self._ledger.ticks - 1))
        return meter

    def tick(self) -> None:
        for meter in (*self._versions.values(), *self._deprecated.values()):
            meter.tick(self._ledger.ticks)
        for api in self._apis.values():
            for meter in api.errors.values():
                meter.tick(self._ledger.ticks)

    def _count_errors(self, now_s: float) -> None:
        topics = self._server.replica_manager.environment.topics
        topics.fold()
        errors = {"Produce": Counter(topics.produce_errors), "Fetch": Counter(topics.fetch_errors)}
        errors["Produce"][ErrorCode.NONE] = topics.produced
        for route in self._server.routes():
            counts = errors.setdefault(_api_name(route), Counter())
            # ``+=`` of a Counter would walk it twice.
            counts.update(route.errors)
            if route.is_fetch:
                counts[ErrorCode.NONE] += route.times.answers()[0] - sum(route.errors.values())
        for name, counts in errors.items():
            meters = self._api(name).errors
            for code, count in counts.items():
                if not count:
                    continue
                error = error_name(code)
                self._meter(meters, error, now_s).count = count

    def _all_versions(self) -> Iterator[tuple[str, int, RequestTimes]]:
        for route in self._server.routes():
            name = _api_name(route)
            if route.api_key != ApiKey.FETCH:
                yield name, route.api_version, route.times
                continue
            yield FROM_CONSUMER, route.api_version, route.times
            yield FROM_FOLLOWER, route.api_version, route.follower_times

    def _all_times(self) -> Iterator[tuple[str, RequestTimes]]:
        return ((name, times) for name, _, times in self._all_versions())

    def _api(self, name: str) -> ApiMetrics:
        api = self._apis.get(name)
        if api is None:
            api = self._apis[name] = ApiMetrics(name)
        return api

    def _take_few(self, now_s: float) -> None:
        """Take in what only some requests have: throttle times, and records that were converted."""
        requests: Counter[str] = Counter()
        for name, times in self._all_times():
            requests[name] += times.requests
        requests["Fetch"] = requests[FROM_CONSUMER] + requests[FROM_FOLLOWER]
        for api_key, throttles in self._server.quotas.throttles.items():
            name = FROM_CONSUMER if api_key == ApiKey.FETCH else _name_of(api_key)
            self._api(name).take_throttles(throttles, requests[name], now_s)
        topics = self._server.replica_manager.environment.topics
        for name, conversions in (("Produce", topics.produced_conversions), ("Fetch", topics.fetched_conversions)):
            self._api(name).take_conversions(conversions, requests[name], now_s)

    def mbeans(self) -> MBeans:
        """Yield the figures of each API."""
        now_s = self._ledger.now_s
        self._take_few(now_s)
        for name, times in self._all_times():
            times.fold()
            self._api(name).take(times, now_s)
        sums: defaultdict[str, RequestSums] = defaultdict(RequestSums)
        for name, _, times in self._all_versions():
            sums[name].add(times)
            if name in (FROM_CONSUMER, FROM_FOLLOWER):
                sums["Fetch"].add(times)
        for name in _API_NAMES:
            api = self._api(name)
            if name == "Fetch":
                api.merge(self._api(FROM_CONSUMER), self._api(FROM_FOLLOWER))
            api.count(sums[name])
            for histogram, attributes in api.mbeans():
                yield MBean("kafka.network", "RequestMetrics", histogram, (("request", name),), attributes)
            for error, meter in api.errors.items():
                tags = (("request", name), ("error", error))
                yield MBean(
                    "kafka.network", "RequestMetrics", "ErrorsPerSec", tags, meter.attributes(now_s, self._ledger.ticks)
                )
        for (name, version), meter in self._versions.items():
            if meter.count:
                attributes = meter.attributes(now_s, self._ledger.ticks)
                tags = (("request", name), ("version", str(version)))
                yield MBean("kafka.network", "RequestMetrics", "RequestsPerSec", tags, attributes)
        for (name, version, software, its_version), meter in self._deprecated.items():
            attributes = meter.attributes(now_s, self._ledger.ticks)
            sender = (("clientSoftwareName", software), ("clientSoftwareVersion", its_version))
            tags_of_sender = (("request", name), ("version", str(version)), *sender)
            yield MBean("kafka.network", "RequestMetrics", "DeprecatedRequestsPerSec", tags_of_sender, attributes)


_API_NAMES: Final = (
    "AddOffsetsToTxn", "AddPartitionsToTxn", "AddPartitionsToTxnVerification", "AllocateProducerIds",
    "AlterClientQuotas", "AlterConfigs", "AlterPartition", "AlterPartitionReassignments", "AlterReplicaLogDirs",
    "AlterUserScramCredentials", "ApiVersions", "ConsumerGroupDescribe", "ConsumerGroupHeartbeat",
    "ControlledShutdown", "CreateAcls", "CreateDelegationToken", "CreatePartitions", "CreateTopics", "DeleteAcls",
    "DeleteGroups", "DeleteRecords", "DeleteTopics", "DescribeAcls", "DescribeClientQuotas", "DescribeCluster",
    "DescribeConfigs", "DescribeDelegationToken", "DescribeGroups", "DescribeLogDirs", "DescribeProducers",
    "DescribeTransactions", "DescribeUserScramCredentials", "ElectLeaders", "EndTxn", "Envelope",
    "ExpireDelegationToken", "FetchConsumer", "FetchFollower", "Fetch", "FindCoordinator", "Heartbeat",
    "IncrementalAlterConfigs", "InitProducerId", "JoinGroup", "LeaderAndIsr", "LeaveGroup", "ListGroups",
    "ListOffsets", "ListPartitionReassignments", "ListTransactions", "Metadata", "OffsetCommit", "OffsetDelete",
    "OffsetFetch", "OffsetForLeaderEpoch", "Produce", "RenewDelegationToken", "SaslAuthenticate", "SaslHandshake",
    "StopReplica", "SyncGroup", "TxnOffsetCommit", "UpdateFeatures", "UpdateMetadata", "WriteTxnMarkers",
)  # fmt: skip
"""The APIs that have histograms from the start in a broker of Kafka 3.9 in ZooKeeper mode. Fetch is both kinds."""


def error_name(code: int) -> str:
    """Return an error code's name; Kafka's UNKNOWN_SERVER_ERROR for one that has none."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR.name


def _with_kind(name: str) -> tuple[str, ...]:
    """Return the names under which Kafka counts a request: a Fetch counts as one of its kind, and as one of both."""
    return (name, "Fetch") if name in (FROM_CONSUMER, FROM_FOLLOWER) else (name,)


def _api_name(route: Route, *, is_follower: bool | None = None) -> str:
    if is_follower is None or route.api_key != ApiKey.FETCH:
        return _name_of(route.api_key)
    return FROM_FOLLOWER if is_follower else FROM_CONSUMER


def _name_of(api_key: int) -> str:
    return request_class(ApiKey(api_key)).__name__.removesuffix("Request")
