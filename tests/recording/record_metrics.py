"""Records ``fixtures/metrics``: what two brokers of a cluster register with JMX once they have done everything.

The JMX exporter of Prometheus, with its usual rules for Kafka, says under which names Prometheus knows that.
"""

from __future__ import annotations

import json
import re
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from apache_kafka import ApacheKafkaBroker, fetch_jar, wait_until_all_know_each_other
from kafka_tools import mbeans
from metric_work import all_kinds_of_work, counted_work

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

JMX_EXPORTER = "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1"
JMX_PORT, PAGE_PORT = 19990, 19980
SETTINGS = {"transaction.state.log.num.partitions": "5", "auto.create.topics.enable": "false"}
TOLD_HOST, TOLD_FOLDER = "127.0.0.1", "/data"


def record_metrics(out: Path, work: Path) -> None:
    """Start two brokers, let them work, and keep what they and the JMX exporter name."""
    jar = fetch_jar(JMX_EXPORTER)
    (work / "rules.yml").write_text(json.dumps({"lowercaseOutputName": True, "rules": usual_rules()}))
    measured: list[dict[str, Any]] = []
    pages: list[str] = []
    with ExitStack() as stack:
        host = own_loopback_address()
        zookeeper = stack.enter_context(EmbeddedZooKeeper(host=host, fsync=False)).connect_string
        brokers = []
        for broker_id in (0, 1):
            broker = ApacheKafkaBroker(
                work / str(broker_id),
                broker_id=broker_id,
                host=host,
                port=19092 + broker_id,
                zookeeper_connect=zookeeper,
                overrides=SETTINGS,
                heap="400m",
                jmx_port=JMX_PORT + broker_id,
                agent=f"{jar}={host}:{PAGE_PORT + broker_id}:{work / 'rules.yml'}",
            )
            brokers.append(stack.enter_context(broker))
        wait_until_all_know_each_other(brokers)
        counted_work(brokers[0].bootstrap, (0, 1))
        all_kinds_of_work(brokers[0].bootstrap)
        for broker_id in (0, 1):
            measured.append(mbeans(f"{host}:{JMX_PORT + broker_id}", "kafka*:*"))
            with urllib.request.urlopen(f"http://{host}:{PAGE_PORT + broker_id}/metrics", timeout=60) as page:
                pages.append(page.read().decode())

    def plain(text: str) -> str:
        for broker_id in (0, 1):
            text = text.replace(str(work / str(broker_id) / "data"), TOLD_FOLDER)
        return text.replace(host, TOLD_HOST)

    (out / "kafka-3.9.1-mbeans.json").write_text(plain(_mbeans(measured)), "utf-8")
    (out / "jmx-exporter-1.0.1-broker-1.txt").write_text(plain(_series(pages[1])), "utf-8")


def usual_rules() -> list[dict[str, Any]]:
    """Return the rules of the JMX exporter's example for Kafka 2.0 and later, in their order."""
    own = [
        ("kafka.server<type=(.+), name=(.+), clientId=(.+), topic=(.+), partition=(.*)><>Value", "kafka_server_$1_$2",
         {"clientId": "$3", "topic": "$4", "partition": "$5"}),
        ("kafka.server<type=(.+), name=(.+), clientId=(.+), brokerHost=(.+), brokerPort=(.+)><>Value",
         "kafka_server_$1_$2", {"clientId": "$3", "broker": "$4:$5"}),
        (r"kafka.coordinator.(\w+)<type=(.+), name=(.+)><>Value", "kafka_coordinator_$1_$2_$3", {}),
        *((_named(r"PerSec\w*", pairs, "Count"), "kafka_$1_$2_$3_total", _pairs(pairs)) for pairs in (2, 1, 0)),
        ("kafka.server<type=(.+), user=(.+), client-id=(.+)><>([a-z-]+)", "kafka_server_quota_$4",
         {"resource": "$1", "user": "$2", "clientId": "$3"}),
        ("kafka.server<type=(.+), client-id=(.+)><>([a-z-]+)", "kafka_server_quota_$3",
         {"resource": "$1", "clientId": "$2"}),
        ("kafka.server<type=(.+), user=(.+)><>([a-z-]+)", "kafka_server_quota_$3", {"resource": "$1", "user": "$2"}),
        *((_named("", pairs, "Value"), "kafka_$1_$2_$3", _pairs(pairs)) for pairs in (2, 1, 0)),
    ]  # fmt: skip
    for pairs in (2, 1, 0):
        own.append((_named("", pairs, "Count"), "kafka_$1_$2_$3_count", _pairs(pairs)))
        quantile = {"quantile": f"0.${4 + 2 * pairs}"}
        own.append((_named("", pairs, r"(\d+)thPercentile"), "kafka_$1_$2_$3", _pairs(pairs) | quantile))
    own += [
        (_named(r"Percent\w*", 0, "MeanRate"), "kafka_$1_$2_$3_percent", {}),
        (_named(r"Percent\w*", 0, "Value"), "kafka_$1_$2_$3_percent", {}),
        (_named(r"Percent\w*", 1, "Value"), "kafka_$1_$2_$3_percent", _pairs(1)),
    ]
    return [
        {"pattern": pattern, "name": name, "labels": labels, "type": "COUNTER" if "Count" in pattern else "GAUGE"}
        for pattern, name, labels in own
    ]


def _named(end: str, pairs: int, attribute: str) -> str:
    return rf"kafka.(\w+)<type=(.+), name=(.+){end}{', (.+)=(.+)' * pairs}><>{attribute}"


def _pairs(count: int) -> dict[str, str]:
    return {f"${4 + 2 * index}": f"${5 + 2 * index}" for index in range(count)}


def _mbeans(told: list[dict[str, Any]]) -> str:
    """Return one object: the sets of attributes, and the number of its set for each MBean of each broker."""
    sets = sorted({tuple(sorted(attributes)) for mbeans in told for attributes in mbeans.values()})
    number = {attributes: index for index, attributes in enumerate(sets)}
    brokers = [{name: number[tuple(sorted(mbeans[name]))] for name in sorted(mbeans)} for mbeans in told]
    return json.dumps({"attributes": sets, "brokers": brokers}, indent=0) + "\n"


def _series(page: str) -> str:
    """Return the names with labels and types, without values and what is not Kafka's; of quantiles the highest."""
    page = re.sub(r'^.*quantile="0\.\d\d".*\n', "", page, flags=re.MULTILINE)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", page, re.MULTILINE))
    series = sorted(re.findall(r"^(kafka_(?:[^\s{]+)(?:\{.*\})?) \S+$", page, re.MULTILINE))
    return "".join(f"{kinds[name.partition('{')[0]]} {name}\n" for name in series)
