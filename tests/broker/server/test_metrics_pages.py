"""A broker's metrics as others get them: pages over HTTP, and what is wrong with the settings."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_program import BrokerProgram, settings
from metric_work import COUNTED, counted_work

from engine.broker.metrics.reference import PAGE, ROWS, page
from engine.broker.server.settings import metrics_address
from engine.common.errors import ConfigError
from engine.kafka.config.broker import BrokerConfig
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

PORT, PAGES = 21092, 21095
RECORDED = Path(__file__).parents[3] / "fixtures" / "metrics" / "kafka-3.9.1-mbeans.json"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, zookeeper: EmbeddedZooKeeper) -> Iterator[str]:
    """The address of a broker's pages after some work."""
    folder, host = tmp_path_factory.mktemp("pages"), own_loopback_address()
    own = {
        **settings(folder, host, f"{zookeeper.connect_string}/{folder.name}"),
        "listeners": f"PLAINTEXT://{host}:{PORT}",
        "klamm.metrics.listener": f"{host}:{PAGES}",
    }
    with BrokerProgram(folder, own) as broker:
        broker.wait_until_started()
        counted_work(f"{host}:{PORT}")
        yield f"http://{host}:{PAGES}"
        assert "Traceback" not in broker.server_log


def get(address: str, body: bytes | None = None) -> str:
    with urllib.request.urlopen(address, body, timeout=30) as answer:
        return str(answer.read().decode())


def test_prometheus_gets_one_group_of_lines_per_name(pages: str) -> None:
    text = get(f"{pages}/metrics")
    assert f'kafka_server_brokertopicmetrics_messagesin_total{{topic="{COUNTED}"}} 15.0\n' in text
    assert 'kafka_network_requestmetrics_requests_total{request="Produce",version="8"} 7.0\n' in text
    assert "kafka_controller_kafkacontroller_activecontrollercount 1.0\n" in text
    assert re.search(
        r'^kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} \d', text, re.MULTILINE
    )
    line = re.compile(
        r'(# TYPE \w+ (counter|gauge)|[a-z_][a-z0-9_]*({(\w+="([^"\\\n]|\\.)*",?)*})? (NaN|[+-]?[0-9.e+-]+|[+-]Inf))'
    )
    families = []
    series = set()
    for each in text.splitlines():
        assert line.fullmatch(each), each
        if each.startswith("#"):
            families.append(each.split()[2])
        else:
            name = each.rpartition(" ")[0]
            assert name not in series, name
            series.add(name)
            assert name.partition("{")[0] == families[-1]
    assert len(set(families)) == len(families)


def test_times_and_sizes_are_those_of_the_requests(pages: str) -> None:
    """The last fetch of nothing waited for 200 ms, in which the broker had nothing to do for it."""
    request = {"type": "read", "mbean": "kafka.network:type=RequestMetrics,request=FetchConsumer,*"}
    told = json.loads(get(f"{pages}/jolokia", json.dumps(request).encode()))["value"]
    times = {re.findall("name=([^,]*)", name)[0]: values for name, values in told.items()}
    assert {times[name]["Count"] for name in ("LocalTimeMs", "RemoteTimeMs", "TotalTimeMs", "RequestBytes")} == {5}
    assert 190 <= times["RemoteTimeMs"]["Max"] <= times["TotalTimeMs"]["Max"]
    assert 0 < times["LocalTimeMs"]["Mean"] < 100
    assert 50 < times["RequestBytes"]["Mean"] < 150


def test_a_broker_has_all_that_kafka_has_without_topics_and_clients(pages: str) -> None:
    recorded = json.loads(RECORDED.read_text())
    told = json.loads(get(f"{pages}/jolokia/read/*:*"))["value"]
    for name, number in recorded["brokers"][0].items():
        if re.search(r"(topic|version|error|networkProcessor|processor|logDirectory|clientId|broker-id)=|Log4j", name):
            continue
        if name.startswith("kafka.server:type=LeaderReplication"):
            continue
        assert sorted(told[name]) == recorded["attributes"][number], name


def test_the_page_of_the_docs_lists_all_of_them(pages: str) -> None:
    assert PAGE.read_text("utf-8") == page(), "run: make docs"
    told = json.loads(get(f"{pages}/jolokia/read/*:*"))["value"]
    rows = {(row.domain, row.type, name, frozenset(row.tags)) for row in ROWS for name in row.names or (None,)}
    found = set()
    for each in told:
        domain, _, properties = each.partition(":")
        names = dict(re.findall(r'([^=,]+)=("(?:\\.|[^"\\])*"|[^,]*)', properties))
        found.add((domain, names.pop("type"), names.pop("name", None), frozenset(names)))
    assert found <= rows, found - rows
    missing = {row[1] for row in rows - found}
    assert missing <= {
        "BrokerTopicMetrics",
        "DelayedProducerRequestMetrics",
        "FetcherLagMetrics",
        "FetcherStats",
        "FollowerReplication",
        "LeaderReplication",
        "replica-fetcher-metrics",
    }


def test_what_is_not_served_says_what_is(pages: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{pages}/other")
    assert caught.value.code == 404
    assert b"/metrics" in caught.value.read()
    assert json.loads(get(f"{pages}/jolokia/version"))["value"]["info"]["product"] == "klamm"
    assert json.loads(get(f"{pages}/jolokia/exec/a:b=c/gc"))["status"] == 400


def test_a_taken_port_stops_the_start_and_says_what_to_do(pages: str, tmp_path: Path, zk_chroot: str) -> None:
    host, _, port = pages.removeprefix("http://").partition(":")
    own = {**settings(tmp_path, host, zk_chroot), "klamm.metrics.listener": f"{host}:{port}"}
    with BrokerProgram(tmp_path, {**own, "listeners": f"PLAINTEXT://{host}:21099"}) as broker:
        assert broker.process.wait(60) == 2
        assert f"klamm.metrics.listener: cannot listen at {host}:{port} (Address already in use)" in broker.stderr
        assert "hint: give each broker a port of its own" in broker.stderr


@pytest.mark.parametrize(
    ("listener", "remote", "sentence"),
    [
        ("7071", "false", "'7071' is no address; write HOST:PORT"),
        ("127.0.0.1:99999", "false", "is no address"),
        ("127.0.0.1:http", "false", "is no address"),
        ("0.0.0.0:7071", "false", "other machines reach 0.0.0.0:7071"),
        ("broker.example.com:7071", "false", "set klamm.metrics.allow.remote=true"),
        ("0.0.0.0:7071", "yes", "'yes' is neither true nor false"),
    ],
)
def test_senseless_and_open_addresses_are_refused(listener: str, remote: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        metrics_address(config({"klamm.metrics.listener": listener, "klamm.metrics.allow.remote": remote}))


def test_addresses_of_this_machine_are_taken_and_others_if_allowed() -> None:
    assert metrics_address(config({})) is None
    assert metrics_address(config({"klamm.metrics.listener": "127.0.0.1:0"})) == ("127.0.0.1", 0)
    assert metrics_address(config({"klamm.metrics.listener": "[::1]:7071"})) == ("::1", 7071)
    assert metrics_address(config({"klamm.metrics.listener": "localhost:7071"})) == ("localhost", 7071)
    allowed = {"klamm.metrics.listener": "0.0.0.0:7071", "klamm.metrics.allow.remote": "true"}
    assert metrics_address(config(allowed)) == ("0.0.0.0", 7071)
    assert config(allowed).warnings == []
    (warning,) = config({"klamm.metrics.listner": "127.0.0.1:1"}).warnings
    assert "Did you mean klamm.metrics.listener?" in warning


def config(own: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_properties({"zookeeper.connect": "a:1", "broker.id": "1"}, own)
