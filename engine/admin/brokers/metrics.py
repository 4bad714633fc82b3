"""What brokers count and measure, under the names of Kafka's MBeans: the same figures from every source. Pure.

Sources: ``BrokerTopicMetrics``, ``RequestMetrics``, ``KafkaRequestHandlerPool`` and ``ReplicaManager`` of Kafka 3.9,
and the names that the JMX exporter's usual rules for Kafka give them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

Bean = tuple[str, str]
"""The name of an MBean, and its topic or its request; "" if it has none. Of quotas the type, and user and client id."""

Beans = dict[Bean, dict[str, float]]
"""Attributes of MBeans. What is no finite number is left out."""

TOPIC_METERS: Final = ("MessagesInPerSec", "BytesInPerSec", "BytesOutPerSec")
_HANDLERS: Final = "RequestHandlerAvgIdlePercent"
_MANAGER: Final = ("IsrShrinksPerSec", "IsrExpandsPerSec", "UnderReplicatedPartitions")
_APIS: Final = ("Produce", "FetchConsumer")
_P99: Final = "99thPercentile"

IDLE_LOW_PERCENT: Final = 20
"""Request handlers that wait less than this part of their time are the limit of what a broker can do."""

TOPICS_MAX: Final = 2_000
"""In a larger cluster the traffic of each topic is not read every few seconds: that would take brokers too long."""

QUOTA_TYPES: Final = ("Produce", "Fetch", "Request", "ControllerMutation")
"""MBeans about the use of quotas, one for each user and client id of each kind."""

_PROPERTY: Final = re.compile(r'(?<![\w-])(\w[\w-]*+)=("(?:\\.|[^"\\])*+"|[^,]*)')
_SERIES: Final = re.compile(r"(kafka_(?:server|network)_\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'\b(\w++)="((?:\\.|[^"\\])*+)"')


class Teller(StrEnum):
    """How a broker reports its figures."""

    JOLOKIA = "jolokia"
    JMX = "jmx"
    PROMETHEUS = "prometheus"


@dataclass(frozen=True, slots=True)
class Rate:
    """Something that is counted. What is not reported is None.

    Attributes:
        total: the count since the broker started.
        one_minute: events a second, as the broker averages them; likewise the two below.
        measured: events a second between two readings, where the broker reports counts only.
    """

    total: float | None = None
    one_minute: float | None = None
    five_minutes: float | None = None
    fifteen_minutes: float | None = None
    measured: float | None = None

    @property
    def now(self) -> float | None:
        """The newest rate that is known."""
        return self.measured if self.one_minute is None else self.one_minute


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """The requests of one API since the broker started."""

    api: str
    count: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """The traffic of one topic on one broker: of the partitions that it leads."""

    topic: str
    messages_in: Rate = Rate()
    bytes_in: Rate = Rate()
    bytes_out: Rate = Rate()


class TopicTraffic(NamedTuple):
    """The bytes a second of one topic, over the brokers that report it. None: nobody does."""

    bytes_in: float | None = None
    bytes_out: float | None = None


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """What one broker reports.

    Attributes:
        told_by: the protocol; None if it reports nothing. ``where`` is the address.
        trouble: why something is missing; None if nothing is.
        measured_s: the seconds between two readings, where rates had to be measured so.
        handler_idle_percent: how much of their time the request handlers wait, in the last minute.
        produce_p99_ms: of the newest requests 99 % were answered in this time, waiting for followers included;
            ``fetch_p99_ms`` those of consumers, waiting for records included.
        produce_throttle_ms: the same percentile of the time for which answers were held back for a quota.
        requests, topics: None if they were not asked for.
    """

    broker: int
    told_by: Teller | None = None
    where: str | None = None
    trouble: str | None = None
    measured_s: float | None = None
    messages_in: Rate = Rate()
    bytes_in: Rate = Rate()
    bytes_out: Rate = Rate()
    handler_idle_percent: float | None = None
    produce_p99_ms: float | None = None
    fetch_p99_ms: float | None = None
    produce_throttle_ms: float | None = None
    fetch_throttle_ms: float | None = None
    isr_shrinks: Rate = Rate()
    isr_expands: Rate = Rate()
    under_replicated: int | None = None
    requests: tuple[RequestFigures, ...] | None = None
    topics: tuple[TopicFigures, ...] | None = None

    @property
    def throttle_ms(self) -> float | None:
        """The longer of the two times for which answers were held back; None if neither is reported."""
        return max((ms for ms in (self.produce_throttle_ms, self.fetch_throttle_ms) if ms is not None), default=None)


def traffic_of(figures: Iterable[BrokerFigures]) -> dict[str, TopicTraffic]:
    """Return the traffic of each topic that a broker reports."""
    traffic: dict[str, TopicTraffic] = {}
    for broker in figures:
        for topic in broker.topics or ():
            known = traffic.get(topic.topic, TopicTraffic())
            traffic[topic.topic] = TopicTraffic(
                _together(known.bytes_in, topic.bytes_in.now), _together(known.bytes_out, topic.bytes_out.now)
            )
    return traffic


def _together(value: float | None, other: float | None) -> float | None:
    # Averages fade away for hours: what is no byte any more stays the same from one reading to the next.
    return value if other is None else round((value or 0.0) + other, 1)


def traffic_patterns() -> list[str]:
    """Return the names of the MBeans that ``TopicTraffic`` needs."""
    return [f"kafka.server:type=BrokerTopicMetrics,name={name},topic=*" for name in TOPIC_METERS[1:]]


def patterns(*, requests: bool, topics: bool) -> list[str]:
    """Return the names in JMX of the MBeans that ``figures_of`` needs, no others: a broker has very many."""
    every = ",*" if topics else ""
    return [
        *(f"kafka.server:type=BrokerTopicMetrics,name={name}{every}" for name in TOPIC_METERS),
        *(f"kafka.network:type=RequestMetrics,name=ThrottleTimeMs,request={api}" for api in _APIS),
        *(
            f"kafka.network:type=RequestMetrics,name=TotalTimeMs,request={api}"
            for api in (("*",) if requests else _APIS)
        ),
        f"kafka.server:type=KafkaRequestHandlerPool,name={_HANDLERS}",
        *(f"kafka.server:type=ReplicaManager,name={name}" for name in _MANAGER),
    ]


def quota_patterns() -> list[str]:
    """Return the names of the MBeans about quotas, and of one that every broker has."""
    return [
        *(f"kafka.server:type={kind},*" for kind in QUOTA_TYPES),
        f"kafka.server:type=ReplicaManager,name={_MANAGER[2]}",
    ]


def whose(user: str, client_id: str) -> str:
    """Return the tag of a quota's MBean. Kafka encodes a user's name, so it has no slash."""
    return f"{user}/{client_id}"


def bean_of(object_name: str) -> Bean | None:
    """Return an MBean by its name in JMX; None if it has no ``name`` and is not about a quota."""
    properties = dict(_PROPERTY.findall(object_name.partition(":")[2]))
    if "name" not in properties:
        if properties.get("type") not in QUOTA_TYPES:
            return None
        return properties["type"], whose(_plain(properties.get("user", "")), _plain(properties.get("client-id", "")))
    return properties["name"], _plain(properties.get("topic") or properties.get("request") or "")


def numbers(attributes: Mapping[str, object]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in attributes.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def beans_of_page(page: str) -> Beans:
    """Return what a page for Prometheus contains: by the JMX exporter's usual rules for Kafka, or by none."""
    beans: Beans = {}
    for line in page.splitlines():
        match = _SERIES.match(line)
        if match is None:
            continue
        labels = {key: _unescaped(text) for key, text in _LABEL.findall(match[2] or "")}
        named = _named(match[1].lower(), labels)
        try:
            value = float(match[3])
        except ValueError:
            continue
        if named is not None and math.isfinite(value):
            name, attribute = named
            tag = _plain(labels.get("topic") or labels.get("request") or "")
            if name in QUOTA_TYPES:
                tag = whose(_plain(labels.get("user", "")), _plain(labels.get("clientId", "")))
            beans.setdefault((name, tag), {})[attribute] = value
    return beans


_FAMILIES: Final = {
    **{
        f"kafka_server_brokertopicmetrics_{name.removesuffix('PerSec').lower()}_total": (name, "Count")
        for name in TOPIC_METERS
    },
    **{
        f"kafka_server_replicamanager_{name.removesuffix('PerSec').lower()}_total": (name, "Count")
        for name in _MANAGER[:2]
    },
    f"kafka_server_replicamanager_{_MANAGER[2].lower()}": (_MANAGER[2], "Value"),
    **{
        f"kafka_server_kafkarequesthandlerpool_{_HANDLERS.lower()}_{end}": (_HANDLERS, "Count")
        for end in ("count", "count_total")
    },
    **{f"kafka_network_requestmetrics_totaltimems_{end}": ("TotalTimeMs", "Count") for end in ("count", "count_total")},
}
_QUOTA: Final = "kafka_server_quota_"
_TIMES: Final = {f"kafka_network_requestmetrics_{name.lower()}": name for name in ("TotalTimeMs", "ThrottleTimeMs")}
_TYPES: Final = (
    "kafka_server_brokertopicmetrics_", "kafka_server_replicamanager_", "kafka_server_kafkarequesthandlerpool_",
    "kafka_network_requestmetrics_",
)  # fmt: skip
_ATTRIBUTES: Final = {
    name.lower(): name for name in ("Count", "Value", "OneMinuteRate", "FiveMinuteRate", "FifteenMinuteRate", _P99)
}


def _named(family: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the MBean's name and the attribute that a series shows."""
    if family.startswith(_QUOTA) and labels.get("resource") in QUOTA_TYPES:
        return labels["resource"], family.removeprefix(_QUOTA).replace("_", "-")
    if family in _TIMES:
        return (_TIMES[family], _P99) if labels.get("quantile") == "0.99" else None
    if family in _FAMILIES:
        return _FAMILIES[family]
    # Without rules the type and the attribute make the name, and the rest are labels.
    kind = next((prefix for prefix in _TYPES if family.startswith(prefix)), None)
    attribute = None if kind is None else _ATTRIBUTES.get(family.removeprefix(kind).lstrip("_"))
    return (labels["name"], attribute) if attribute is not None and "name" in labels else None


def is_of_klamm(page: str) -> bool:
    """Whether a page for Prometheus is one of klamm's broker, which speaks Jolokia's protocol, too."""
    return "\nklamm_eventloop_lagms " in page


def has_rates(beans: Beans) -> bool:
    """Whether a broker reported averages, not only counts."""
    return any("OneMinuteRate" in attributes for attributes in beans.values())


def figures_of(
    beans: Beans, broker: int, before: Beans | None = None, measured_s: float = 0.0, *, requests: bool, topics: bool
) -> BrokerFigures:
    """Return what MBeans say.

    Args:
        before: what they said ``measured_s`` seconds earlier, where only counts are reported.
    """

    def rate(name: str, tag: str = "") -> Rate:
        attributes = beans.get((name, tag), {})
        total = attributes.get("Count")
        earlier = None if before is None else before.get((name, tag), {}).get("Count")
        return Rate(
            total,
            attributes.get("OneMinuteRate"),
            attributes.get("FiveMinuteRate"),
            attributes.get("FifteenMinuteRate"),
            # A count falls if the broker has restarted between the two.
            None if total is None or earlier is None or total < earlier else (total - earlier) / measured_s,
        )

    def p99(name: str, api: str) -> float | None:
        return beans.get((name, api), {}).get(_P99)

    idle = rate(_HANDLERS)
    # The meter counts nanoseconds: its rates are parts of the whole, its count is not.
    part = idle.one_minute if idle.one_minute is not None else None if idle.measured is None else idle.measured / 1e9
    under = beans.get((_MANAGER[2], ""), {}).get("Value")
    produce, fetch = _APIS
    return BrokerFigures(
        broker,
        measured_s=measured_s if before is not None else None,
        messages_in=rate(TOPIC_METERS[0]),
        bytes_in=rate(TOPIC_METERS[1]),
        bytes_out=rate(TOPIC_METERS[2]),
        handler_idle_percent=None if part is None else min(100.0, 100 * part),
        produce_p99_ms=p99("TotalTimeMs", produce),
        fetch_p99_ms=p99("TotalTimeMs", fetch),
        produce_throttle_ms=p99("ThrottleTimeMs", produce),
        fetch_throttle_ms=p99("ThrottleTimeMs", fetch),
        isr_shrinks=rate(_MANAGER[0]),
        isr_expands=rate(_MANAGER[1]),
        under_replicated=None if under is None else int(under),
        requests=tuple(_requests(beans)) if requests else None,
        topics=tuple(TopicFigures(topic, *(rate(name, topic) for name in TOPIC_METERS)) for topic in _topics(beans))
        if topics
        else None,
    )


def _requests(beans: Beans) -> Iterator[RequestFigures]:
    """Yield the APIs that were called, the slowest first."""
    figures = [
        RequestFigures(api, attributes.get("Count"), attributes.get(_P99))
        for (name, api), attributes in beans.items()
        if name == "TotalTimeMs" and attributes.get("Count") != 0
    ]
    yield from sorted(figures, key=lambda request: (-(request.p99_ms or 0), request.api))


def _topics(beans: Beans) -> list[str]:
    return sorted({topic for name, topic in beans if topic and name in TOPIC_METERS})


def _plain(value: str) -> str:
    """Return a property's value without the quotes of JMX."""
    if len(value) < 2 or not (value.startswith('"') and value.endswith('"')):
        return value
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], value[1:-1])


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text)
