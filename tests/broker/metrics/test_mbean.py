"""Names in JMX and in Prometheus; the oracle is a page of the JMX exporter with its rules for Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from engine.broker.metrics.mbean import MBean
from engine.broker.metrics.prometheus import PrometheusPage, WrittenPieces, labels_text, number_text, series_of

RECORDED = Path(__file__).parents[3] / "fixtures" / "metrics"


def recorded_mbeans(broker_id: int) -> dict[str, list[str]]:
    """Return the attributes of each MBean that a broker of Kafka had."""
    document = json.loads((RECORDED / "kafka-3.9.1-mbeans.json").read_text())
    return {name: document["attributes"][number] for name, number in document["brokers"][broker_id].items()}


def mbean_of(name: str, attributes: list[str]) -> MBean:
    """Return an MBean with a number for each attribute that has one in Kafka."""
    domain, _, properties = name.partition(":")
    properties_found = dict(re.findall(r'([^=,]+)=("(?:\\.|[^"\\])*"|[^,]*)', properties))
    texts = ("ClusterId", "SessionState")
    values: dict[str, object] = {
        each: "text"
        if properties_found.get("name") in texts or each in ("EventType", "RateUnit", "LatencyUnit")
        else 1.5
        for each in attributes
    }
    own = {"type": properties_found.pop("type"), "name": properties_found.pop("name", None)}
    tags = tuple((key, value.strip('"')) for key, value in properties_found.items())
    return MBean(domain, str(own["type"]), own["name"], tags, values)


def test_object_names_are_those_of_kafka() -> None:
    for name, attributes in recorded_mbeans(0).items():
        if "Log4jController" not in name:
            assert mbean_of(name, attributes).object_name == name


def test_the_page_has_what_the_jmx_exporter_shows() -> None:
    page = PrometheusPage()
    for name, attributes in recorded_mbeans(1).items():
        if ",name=" in name:
            # The rules leave out what has no name, Kafka's windowed figures.
            page.add(mbean_of(name, attributes))
    ours = set()
    kind = ""
    for line in b"".join(page.pieces()).decode().splitlines():
        if line.startswith("# TYPE "):
            kind = line.split()[3]
        else:
            ours.add(f"{kind} {sorted_labels(line.rpartition(' ')[0])}")
    labels = {sorted_labels(line) for line in (RECORDED / "jmx-exporter-1.0.1-broker-1.txt").read_text().splitlines()}
    assert sorted(labels - ours) == []
    more = {line for line in ours - labels if 'quantile="0.' not in line or "0.999" in line}
    assert {re.sub("idle_percent.*", "idle_percent", line) for line in more} == {
        "gauge kafka_network_processor_idle_percent",
        "gauge kafka_network_socketserver_controlplanenetworkprocessoravgidle_percent",
        "gauge kafka_network_socketserver_networkprocessoravgidle_percent",
    }, "by the rules of others"


def sorted_labels(series: str) -> str:
    name, brace, rest = series.partition("{")
    if not brace:
        return name
    labels = re.findall(r'(\w+="(?:\\.|[^"\\])*")', rest)
    return f"{name}{{{','.join(sorted(labels))}}}"


def test_what_is_no_number_has_no_series_and_odd_topics_are_escaped() -> None:
    series = list(series_of(MBean("kafka.server", "T", "N", (("topic", 'a"b\\c\nd'),), {"Value": "text"})))
    assert series == []
    (escaped,) = series_of(MBean("kafka.server", "T", "N", (("topic", 'a"b'),), {"Value": True}))
    assert escaped.family == "kafka_server_t_n"
    assert escaped.value == 1.0
    assert '"' in escaped.labels and "\n" not in escaped.labels


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.0"), (float("nan"), "NaN"), (float("inf"), "+Inf"), (2e18, "2e+18")]
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert number_text(value) == text


def test_many_numbers_stand_on_the_page_like_mbeans_of_their_own() -> None:
    number = 2500
    labels = [labels_text((("topic", "t"), ("partition", str(n)))) + " " for n in range(number)]
    page, other = PrometheusPage(), PrometheusPage()
    page.add(MBean("kafka.log", "Log", "Size", (), {"Value": 7}))
    other.add(MBean("kafka.log", "Log", "Size", (), {"Value": 7}))
    numbers = [each for n in range(number) for each in (n, 10**12 + n, -1)]
    page.add_numbers(["kafka_log_log_size", None, "kafka_log_log_end"], labels, numbers)
    for n in range(number):
        for name, value in (("Size", n), ("End", -1)):
            tags = (("topic", "t"), ("partition", str(n)))
            other.add(MBean("kafka.log", "Log", name, tags, {"Value": value}))
    page.add_numbers(["kafka_log_log_none"], [], [])
    assert b"".join(page.pieces()) == b"".join(other.pieces())


def test_a_later_page_has_the_new_numbers_among_the_old_ones() -> None:
    labels = [labels_text((("partition", str(n)),)) + " " for n in range(2500)]
    written: WrittenPieces = {}

    def page_of(numbers: list[int], known: WrittenPieces | None) -> list[bytes]:
        page = PrometheusPage()
        page.add_numbers(["a", "b"], labels, numbers, written=known)
        return list(page.pieces())

    first = [0, 5] * 2500
    second = [*first]
    second[2 * 1700 + 1] = 6
    before = page_of(first, written)
    after = page_of(second, written)
    assert (before, after) == (page_of(first, None), page_of(second, None))
    assert [old is new for old, new in zip(before, after, strict=True)].count(True) == 5, "of six with numbers"
