"""Kafka's internal topics are created according to the broker's settings."""

from __future__ import annotations

from engine.broker.controller.topic_admin import InternalTopic, internal_topic
from engine.kafka.config.broker import BrokerConfig

NEEDED = {"zookeeper.connect": "z:1"}


def test_the_offsets_topic() -> None:
    settings = {
        "offsets.topic.num.partitions": "7",
        "offsets.topic.replication.factor": "2",
        "offsets.topic.segment.bytes": "1000000",
        "offsets.topic.compression.codec": "3",
    }
    made = internal_topic("__consumer_offsets", BrokerConfig.from_properties(NEEDED | settings))
    # The coordinator chooses the codec when it writes. The topic stores what it gets.
    expected = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "1000000"}
    assert made == InternalTopic(7, 2, expected)


def test_the_topic_of_transactions() -> None:
    settings = {
        "transaction.state.log.num.partitions": "5",
        "transaction.state.log.replication.factor": "4",
        "transaction.state.log.min.isr": "3",
        "transaction.state.log.segment.bytes": "2000000",
    }
    made = internal_topic("__transaction_state", BrokerConfig.from_properties(NEEDED | settings))
    assert made is not None
    assert (made.num_partitions, made.replication_factor) == (5, 4)
    assert made.configs["min.insync.replicas"] == "3"
    assert made.configs["segment.bytes"] == "2000000"
    assert made.configs["unclean.leader.election.enable"] == "false"


def test_other_topics_have_the_brokers_defaults() -> None:
    assert internal_topic("t", BrokerConfig.from_properties(NEEDED)) is None
