"""Metrics as files, for Graphite and for people: names and columns are Yammer's."""

from __future__ import annotations

import math

from engine.broker.metrics.mbean import MBean
from engine.broker.metrics.measures import Histogram, Meter, Timer
from engine.broker.server.reporters import csv_rows, graphite_lines, text_lines

GAUGE = MBean("kafka.server", "ReplicaManager", "LeaderCount", (), {"Value": 7})
METER = MBean("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", (), Meter("bytes", 0.0).attributes(1.0, 0))
OF_TOPIC = METER._replace(tags=(("topic", "a.b"),))
WINDOWED = MBean(
    "kafka.server", "Produce", None, (("client-id", "app"),), {"byte-rate": 1.5, "throttle-time": math.nan}
)
OF_FETCH = (("request", "Fetch"),)
HISTOGRAM = MBean("kafka.network", "RequestMetrics", "TotalTimeMs", OF_FETCH, Histogram().attributes())
TIMER = MBean("kafka.log", "LogFlushStats", "LogFlushRateAndTimeMs", (), Timer(0.0).attributes(1.0, 0))
ALL = [GAUGE, METER, OF_TOPIC, WINDOWED, HISTOGRAM, TIMER]


def test_csv_has_yammers_files_and_columns() -> None:
    other = GAUGE._replace(type="Another")
    rows = {row.file: row for row in csv_rows([*ALL, other], 30)}
    meter = "# time,count,1 min rate,mean rate,5 min rate,15 min rate\n"
    histogram = "# time,min,max,mean,median,stddev,95%,99%,99.9%\n"
    assert {name: row.header for name, row in rows.items()} == {
        "LeaderCount.csv": "# time,value\n",
        "Another.LeaderCount.csv": "# time,value\n",
        "BytesInPerSec.csv": meter,
        "BrokerTopicMetrics.topic.a_b.BytesInPerSec.csv": meter,
        "RequestMetrics.request.Fetch.TotalTimeMs.csv": histogram,
        "LogFlushRateAndTimeMs.csv": histogram,
    }
    assert rows["LeaderCount.csv"].line == "30,7\n"
    assert rows["BytesInPerSec.csv"].line == "30,0,0.0,0.0,0.0,0.0\n"


def test_graphite_gets_yammers_names_and_only_numbers() -> None:
    lines = list(graphite_lines([GAUGE, OF_TOPIC, WINDOWED], "kafka.1", 1700000000))
    assert lines[0] == "kafka.1.kafka.server.ReplicaManager.LeaderCount.value 7 1700000000\n"
    assert "kafka.1.kafka.server.BrokerTopicMetrics.topic.a_b.BytesInPerSec.1MinuteRate 0 1700000000\n" in lines
    assert lines[-1] == "kafka.1.kafka.server.Produce.client-id.app.byte-rate 1.5 1700000000\n"
    assert all(len(line.split()) == 3 for line in lines)


def test_people_get_a_line_for_each() -> None:
    assert list(text_lines([GAUGE, WINDOWED])) == [
        "kafka.server:type=ReplicaManager,name=LeaderCount Value=7",
        "kafka.server:type=Produce,client-id=app byte-rate=1.5 throttle-time=nan",
    ]
