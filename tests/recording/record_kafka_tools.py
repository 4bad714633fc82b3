"""Records ``fixtures/kafka-tools``: the options that Kafka's tools list in their usage tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

from apache_kafka import run_tool

TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-acls": "kafka.admin.AclCommand",
    "zookeeper-security-migration": "kafka.admin.ZkSecurityMigrator",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
}
ABSENT = {
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-jmx": "org.apache.kafka.tools.JmxTool",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-mirror-maker": "kafka.tools.MirrorMaker",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


def record_kafka_tools(out: Path, _: Path) -> None:
    """Ask every tool for its help."""
    for file, tools in (("options.json", TOOLS), ("absent-options.json", ABSENT)):
        rows = [f"  {json.dumps(name)}: {json.dumps(_options(main_class))}" for name, main_class in tools.items()]
        (out / file).write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")


def _options(main_class: str) -> list[str]:
    said = _help(main_class)
    options = set(_listed(said))
    for word in _subcommands(said):
        options |= {word, *_listed(_help(main_class, word))}
    if not options:
        raise RuntimeError(f"{main_class} lists no options: {said}")
    return sorted(options)


def _subcommands(said: str) -> list[str]:
    """Tools of argparse4j name them in braces, or in a table; each has a help of its own."""
    in_braces = re.search(r"\{([\w-]+(?:,[\w-]+)+)\}", said)
    if in_braces:
        return in_braces[1].split(",")
    return re.findall(r"^    ([a-z][\w-]*) ", said.partition("\ncommands:\n")[2], re.MULTILINE)


def _help(main_class: str, *words: str) -> str:
    ran = run_tool(main_class, *words, "--help")
    return ran.stdout + ran.stderr


def _listed(said: str) -> list[str]:
    """Return the long options that begin a line of a table, or follow a short one there."""
    return re.findall(r"^[ *]*(?:-\w(?: [A-Z_-]+)?, )?(--[a-z][\w.-]*\w)", said, re.MULTILINE)
