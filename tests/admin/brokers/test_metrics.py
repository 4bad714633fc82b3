"""Brokers' figures: what an answer means, whoever gives it; who is asked where; a broker that hangs holds nobody."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from certificates import Authority

from engine.admin.brokers.metrics import (
    Beans,
    BrokerFigures,
    Rate,
    Teller,
    TopicFigures,
    TopicTraffic,
    bean_of,
    beans_of_page,
    figures_of,
    has_rates,
    patterns,
    traffic_of,
)
from engine.admin.brokers.metrics_sources import (
    Source,
    check_pattern,
    read_http,
    resolved_pattern,
    source_of,
    sources_of,
)
from engine.admin.brokers.reading_metrics import FiguresReader, read_by_http
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, Unreachable
from engine.admin.cluster.profiles import without_login
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.common.model import BrokerInfo, Endpoint, SecurityProtocol
from engine.kafka.client.tls.context import tls_settings

USUAL = """\
# TYPE kafka_server_brokertopicmetrics_messagesin_total counter
kafka_server_brokertopicmetrics_messagesin_total 120.0
kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 100.0
kafka_server_brokertopicmetrics_bytesin_total{topic="or\\"d\\\\e\\nrs"} 7.0
kafka_server_replicamanager_underreplicatedpartitions 2.0
kafka_server_replicamanager_isrshrinks_total 4.0
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent 0.5
kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_count_total 9.0E9
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.50"} 1.0
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 12.5
kafka_network_requestmetrics_totaltimems_count_total{request="Produce"} 30.0
kafka_network_requestmetrics_throttletimems{request="FetchConsumer",quantile="0.99"} NaN
kafka_server_brokertopicmetrics_bytesin_total not-a-number
go_goroutines 7
"""
NO_RULES = """\
kafka_server_BrokerTopicMetrics_OneMinuteRate{name="BytesInPerSec",} 3.5
kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec",topic="orders",} 11.0
kafka_network_RequestMetrics_99thPercentile{name="TotalTimeMs",request="Produce",} 8.0
kafka_server_KafkaRequestHandlerPool_OneMinuteRate{name="RequestHandlerAvgIdlePercent",} 0.25
kafka_server_ReplicaManager_Value{name="UnderReplicatedPartitions",} 1.0
"""


def test_a_page_by_the_usual_rules() -> None:
    beans = beans_of_page(USUAL)
    assert beans["MessagesInPerSec", ""] == {"Count": 120.0}
    assert beans["BytesInPerSec", 'or"d\\e\nrs'] == {"Count": 7.0}
    assert beans["TotalTimeMs", "Produce"] == {"99thPercentile": 12.5, "Count": 30.0}
    assert ("ThrottleTimeMs", "FetchConsumer") not in beans
    assert not has_rates(beans)
    figures = figures_of(beans, 3, requests=True, topics=True)
    assert (figures.under_replicated, figures.isr_shrinks, figures.produce_p99_ms) == (2, Rate(4.0), 12.5)
    # The page has its mean since the start, which says nothing about now.
    assert figures.handler_idle_percent is None
    assert figures.requests is not None and [request.api for request in figures.requests] == ["Produce"]
    assert figures.topics is not None and [topic.topic for topic in figures.topics] == ['or"d\\e\nrs', "orders"]


def test_a_page_by_no_rules_tells_rates() -> None:
    beans = beans_of_page(NO_RULES)
    assert has_rates(beans)
    figures = figures_of(beans, 0, requests=False, topics=True)
    assert (figures.bytes_in.one_minute, figures.produce_p99_ms, figures.under_replicated) == (3.5, 8.0, 1)
    assert figures.handler_idle_percent == 25.0
    assert figures.topics is not None and figures.topics[0].bytes_in.total == 11.0


def test_a_long_word_on_a_page_is_read_once() -> None:
    """To look for a label from each of its letters on would take minutes."""
    word = "a" * 500_000
    assert beans_of_page(f'kafka_server_x{{{word},topic="t"}} 1\n') == {}
    assert bean_of(f"kafka.server:{word},name=N,topic=t") == ("N", "t")


def test_two_readings_of_counts_make_rates() -> None:
    before = beans_of_page(USUAL)
    after = beans_of_page(
        USUAL.replace(" 120.0", " 150.0").replace("9.0E9", "10.5E9").replace("shrinks_total 4.0", "shrinks_total 1.0")
    )
    figures = figures_of(after, 0, before, 2.0, requests=False, topics=False)
    assert (figures.messages_in.measured, figures.messages_in.now, figures.measured_s) == (15.0, 15.0, 2.0)
    assert figures.handler_idle_percent == 75.0
    # Started anew between the two.
    assert (figures.isr_shrinks.total, figures.isr_shrinks.measured) == (1.0, None)


@pytest.mark.parametrize(
    ("name", "bean"),
    [
        ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec", ("BytesInPerSec", "")),
        ('kafka.server:topic="a,b*\\"",type=BrokerTopicMetrics,name=X', ("X", 'a,b*"')),
        ("kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Fetch", ("TotalTimeMs", "Fetch")),
        ("kafka.server:type=socket-server-metrics,listener=A", None),
    ],
)
def test_names_of_jmx(name: str, bean: object) -> None:
    assert bean_of(name) == bean


def test_no_more_is_asked_for_than_is_shown() -> None:
    assert not any("*" in pattern for pattern in patterns(requests=False, topics=False))
    assert sum("*" in pattern for pattern in patterns(requests=True, topics=True)) == 4


@pytest.mark.parametrize(
    ("pattern", "shown", "teller"),
    [
        ("http://{host}:7071/metrics", "http://k1:7071/metrics", Teller.PROMETHEUS),
        ("http://{host}:7071", "http://k1:7071/metrics", Teller.PROMETHEUS),
        ("https://u:p@{host}/kafka-{id}/jolokia", "https://k1:443/kafka-4/jolokia", Teller.JOLOKIA),
        ("jmx://admin:s%40t@{host}:9999", "jmx://k1:9999", Teller.JMX),
        ("jmxs://{host}:9999", "jmxs://k1:9999", Teller.JMX),
    ],
)
def test_where_a_pattern_leads(pattern: str, shown: str, teller: Teller) -> None:
    source = source_of(pattern, 4, "k1")
    assert (str(source), source.teller) == (shown, teller)
    assert "@" not in repr(source), "no login is shown"


def test_no_broker_shows_the_metrics_of_another() -> None:
    hosts = {1: "k1", 2: "k1", 3: "k3"}
    sources = sources_of("jmx://{host}:9999", hosts)
    reason = "several brokers would have the address jmx://k1:9999: write {id} where they differ"
    assert {broker: str(source) for broker, source in sources.items()} == {1: reason, 2: reason, 3: "jmx://k3:9999"}
    assert [*map(str, sources_of("jmx://{host}:999{id}", hosts).values())] == [
        "jmx://k1:9991",
        "jmx://k1:9992",
        "jmx://k3:9993",
    ]


def test_ipv6_and_logins() -> None:
    assert str(source_of("jmx://{host}:9999", 0, "::1")) == "jmx://[::1]:9999"
    source = source_of("jmx://admin:s%40t@{host}:9999", 0, "k1")
    assert (source.user, source.password) == ("admin", "s@t")


@pytest.mark.parametrize(
    "pattern",
    [
        "http://k1:7071/metrics",
        "{host}:7071",
        "ftp://{host}:1",
        "jmx://{host}",
        "jmxs://{host}",
        "http://{host}:x/",
        "{host}",
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadRequest):
        check_pattern(pattern)


def test_a_password_that_stands_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JMX_USER", "{id}:x")
    (tmp_path / "secrets").write_text("jmx=s/e:c@r#t%41\n")
    pattern = f"jmxs://${{env:JMX_USER}}:${{file:{tmp_path}/secrets:jmx}}@{{host}}:9999"
    check_pattern(pattern)
    source = source_of(resolved_pattern(pattern), 4, "k1")
    assert (source.user, source.password, str(source)) == ("{id}:x", "s/e:c@r#t%41", "jmxs://k1:9999")
    monkeypatch.delenv("JMX_USER")
    # Whoever writes it into a profile need not have the password yet.
    check_pattern(pattern)
    with pytest.raises(BadRequest, match="JMX_USER"):
        resolved_pattern(pattern)


def test_a_password_is_in_no_message() -> None:
    with pytest.raises(BadRequest) as refused:
        check_pattern("ftp://me:secret@{host}:1")
    assert "secret" not in f"{refused.value}{refused.value.where}{refused.value.hint}"
    with pytest.raises(BadRequest) as refused:
        check_pattern("http://me:secret@k1:7071/metrics")
    assert "secret" not in f"{refused.value}{refused.value.where}{refused.value.hint}"
    assert without_login("jmx://me:se@cret@{host}:1") == "jmx://[redacted]@{host}:1"
    assert without_login("http://{host}:7071/a@b") == "http://{host}:7071/a@b"


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop of its own."""

    @wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]


@asynccontextmanager
async def serving(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Yield the port of a server that answers each connection with ``serve``."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


def says(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    return serve


def source(port: int, teller: Teller = Teller.PROMETHEUS) -> Source:
    return Source(teller, "127.0.0.1", port, "/metrics" if teller is Teller.PROMETHEUS else "/jolokia")


@in_loop
async def test_a_chunked_page_is_read() -> None:
    body = USUAL.encode()
    parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:100], body[100:]))
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n"
    async with serving(says(answer)) as port:
        assert (await read_http(source(port), [])).beans == beans_of_page(USUAL)


@in_loop
async def test_jolokia_answers_for_each_name() -> None:
    names = patterns(requests=False, topics=True)
    value = {"kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=t": {"OneMinuteRate": 2.5, "Count": 9}}
    answers: list[object] = [{"status": 404, "error": "no such MBean"} for _ in names]
    answers[0] = {"status": 200, "value": value}
    answers[-1] = {"status": 200, "value": {"Value": 1}}
    body = json.dumps(answers).encode()
    async with serving(says(b"HTTP/1.0 200 OK\r\n\r\n" + body)) as port:
        beans: Beans = (await read_http(source(port, Teller.JOLOKIA), names)).beans
    assert beans == {
        ("MessagesInPerSec", "t"): {"OneMinuteRate": 2.5, "Count": 9.0},
        ("UnderReplicatedPartitions", ""): {"Value": 1.0},
    }


@pytest.mark.parametrize(
    ("teller", "answer", "why"),
    [
        (Teller.PROMETHEUS, b"HTTP/1.1 401 Unauthorized\r\n\r\n", "401 Unauthorized"),
        (Teller.PROMETHEUS, b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (Teller.PROMETHEUS, b"", "not HTTP"),
        (Teller.PROMETHEUS, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nup", "not HTTP"),
        (Teller.PROMETHEUS, b"HTTP/1.1 200 OK\r\n\r\nup 1\n", "none of Kafka's metrics"),
        (Teller.JOLOKIA, b"HTTP/1.1 200 OK\r\n\r\n<html>", "not Jolokia's"),
        (Teller.JOLOKIA, b"HTTP/1.1 200 OK\r\n\r\n[]", "not Jolokia's"),
        (Teller.JOLOKIA, b"HTTP/1.1 200 OK\r\n\r\n[1, 2]", "not Jolokia's"),
    ],
)
@in_loop
async def test_who_is_not_understood_is_named(teller: Teller, answer: bytes, why: str) -> None:
    async with serving(says(answer)) as port:
        with pytest.raises(Unreachable) as refused:
            await read_http(source(port, teller), ["a:name=A", "a:name=B"])
    assert why in str(refused.value)


@in_loop
async def test_nobody_is_there() -> None:
    async with serving(says(b"")) as port:
        pass
    with pytest.raises(Unreachable, match="cannot connect"):
        await read_http(source(port), [])


@in_loop
async def test_a_page_over_tls_is_trusted_by_the_clients_store() -> None:
    ca = Authority()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with NamedTemporaryFile(suffix=".pem") as store:
        context.load_cert_chain(ca.sign("broker", ["127.0.0.1"]).write_pem(Path(store.name)))
    trusts = {"ssl.truststore.certificates": ca.pem}
    others = {"ssl.truststore.certificates": Authority("somebody else").pem}
    async with serving(says(b"HTTP/1.0 200 OK\r\n\r\n" + USUAL.encode()), context) as port:
        pattern = f"https://{{host}}:{port}"
        assert (await read_http(source_of(pattern, 0, "127.0.0.1", tls_settings(trusts)), [])).beans
        for tls, host, why in ((others, "127.0.0.1", "no CA in the trust store"), (trusts, "localhost", "127.0.0.1")):
            with pytest.raises(Unreachable, match=why):
                await read_http(source_of(pattern, 0, host, tls_settings(tls)), [])
    async with serving(lambda reader, writer: reader.readexactly(1)) as port:
        with pytest.raises(Unreachable, match="does not speak TLS"):
            await read_http(source_of(f"https://{{host}}:{port}", 0, "127.0.0.1", tls_settings(trusts)), [])


@in_loop
async def test_a_broker_that_hangs_has_a_reason_in_its_time() -> None:
    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1) or True:
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(drips) as port:
        async with asyncio.timeout(10):
            reading = await read_by_http(5, source(port), [], 0.3, measures=True)
    assert (reading.broker, reading.beans, reading.trouble) == (5, None, "no answer within 0.3 s")


# Again and again, for a dashboard


def reader(port: int, read_jmx: Any = None) -> tuple[FiguresReader, list[BrokerInfo]]:
    target = ClusterTarget("t", Origin.OPTIONS, metrics=f"http://127.0.0.1:{port}/metrics?of={{id}}")
    endpoint = Endpoint.of_protocol("127.0.0.1", 1, SecurityProtocol.PLAINTEXT)
    brokers = [BrokerInfo(id_, (endpoint,)) for id_ in (0, 1, 2)]
    return FiguresReader(Cluster(target), read_jmx), brokers


@in_loop
async def test_counts_become_rates_with_the_second_reading_and_a_silent_broker_is_not_asked() -> None:
    asked: list[bytes] = []

    async def counts(request: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        asked.append((await request.readuntil(b"\r\n\r\n")).split()[1])
        page = USUAL.replace("messagesin_total 120.0", f"messagesin_total {120 + 1000 * len(asked)}")
        answer.write(b"HTTP/1.0 200 OK\r\n\r\n" + page.encode())
        await answer.drain()

    async with serving(counts) as port:
        figures, brokers = reader(port)
        first = await figures.read(brokers, {}, {2: 5_000}, topics=True)
        second = await figures.read(brokers, {}, {}, topics=False)
    assert first.brokers[0].messages_in.now is None and "next reading" in (first.brokers[0].trouble or "")
    assert first.brokers[2].trouble == "it does not answer"
    assert sorted(asked) == [b"/metrics?of=0"] * 2 + [b"/metrics?of=1"] * 2 + [b"/metrics?of=2"]
    assert second.brokers[0].trouble is None and (second.brokers[0].messages_in.now or 0) > 0
    assert second.brokers[2].messages_in.now is None, "its first reading"
    assert not second.topics and all(broker.topics is None for broker in second.brokers.values())


@in_loop
async def test_a_broker_that_does_not_tell_has_a_reason_and_is_looked_up_again() -> None:
    async def refuses(request: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        path = (await request.readuntil(b"\r\n\r\n")).split()[1]
        answer.write(
            b"HTTP/1.0 200 OK\r\n\r\n" + USUAL.encode() if path.endswith(b"0") else b"HTTP/1.0 503 Busy\r\n\r\n"
        )
        await answer.drain()

    async with serving(refuses) as port:
        figures, brokers = reader(port)
        read = await figures.read(brokers, {}, {}, topics=False)
        assert read.missing == ("broker 1: it answers 503 Busy", "broker 2: it answers 503 Busy")
        assert (read.brokers[1].told_by, read.brokers[1].trouble) == (None, "it answers 503 Busy")
        again = await figures.read(brokers, {}, {}, topics=False)
    assert (read.requests, again.requests) == (6, 5), "only where it answered nobody asks again where it tells"


def test_the_traffic_of_a_topic_is_that_of_its_leaders_together() -> None:
    def told(broker: int, *topics: TopicFigures) -> BrokerFigures:
        return BrokerFigures(broker, Teller.JOLOKIA, topics=topics)

    orders = TopicFigures("orders", bytes_in=Rate(one_minute=10.04), bytes_out=Rate(1.0))
    more = TopicFigures("orders", bytes_in=Rate(one_minute=5.0), bytes_out=Rate(measured=2.0))
    faded = TopicFigures("idle", bytes_in=Rate(one_minute=1e-9))
    traffic = traffic_of([told(0, orders, faded), told(1, more), BrokerFigures(2, trouble="no answer")])
    assert traffic == {"orders": TopicTraffic(15.0, 2.0), "idle": TopicTraffic(0.0, None)}
