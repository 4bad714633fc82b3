"""What Kafka's tools printed, kept in ``fixtures/kafka-tools/said.json``, and what klamm prints of the same cluster."""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from cli.output.report import KafkaText
from cli.views.kafka import acls, brokers, configs, groups, reassignment, records, topics, znodes
from cli.views.kafka.hash_order import in_hash_order, java_hash
from engine.admin.brokers.description import BrokerDetails, BrokerPartitions, ListenerDescription
from engine.admin.brokers.self_report import OfferedApi, SelfReport
from engine.admin.configs.values import ConfigEntry, ConfigSource, ConfigSynonym, Entity, EntityConfigs, EntityType
from engine.admin.elections.scope_and_result import ElectionResult, PartitionElection
from engine.admin.groups.description import (
    AssignedTopic,
    CoordinatorAddress,
    DescribedGroup,
    DescribedMember,
    PartitionProgress,
)
from engine.admin.groups.reset_plan import PartitionReset
from engine.admin.groups.values import GroupState, GroupType, ListedGroup
from engine.admin.log_dirs.describing import DirReplica, LogDir
from engine.admin.reassignment.moves import PartitionStatus, ReassignmentState
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.records.deletion import DeletionResult, RecordsDeletion
from engine.admin.records.fetching import ConsumedRecord
from engine.admin.topics.describing import PartitionDescription, TopicDescription
from engine.admin.znodes.tree import Znode
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ConfigError
from engine.common.model import TopicPartition
from engine.kafka.acls import AclBinding, AclEntry, Permission, ResourcePattern
from engine.kafka.formats import transaction_state
from engine.kafka.formats.consumer_offsets import (
    GroupMetadataValue,
    OffsetCommitValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from engine.kafka.protocol.records.attributes import TimestampType
from engine.kafka.protocol.records.record import Record

SAID = json.loads((Path(__file__).parents[2] / "fixtures" / "kafka-tools" / "said.json").read_text("utf-8"))


def said(line: str, nth: int = 0) -> KafkaText:
    rows = [row for row in SAID if re.fullmatch(line, row["line"])]
    return KafkaText(rows[nth]["stdout"], rows[nth]["stderr"])


def topic(name: str, topic_id: str, *replicas: tuple[int, ...], isr: tuple[int, ...] | None = None) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(index, ids[0], ids, isr or ids, (), (), (), None, None)
        for index, ids in enumerate(replicas)
    )
    return TopicDescription(name, topic_id, len(replicas), len(replicas[0]), False, {}, False, partitions)


def entry(name: str, value: str, source: ConfigSource) -> ConfigEntry:
    return ConfigEntry(name, value, source)


def test_topics() -> None:
    described = [
        topic("a.b_c", "PYHeH49gTOG6ti27H7FzCg", (0, 1), (1, 2)),
        topic("defaults", "ebpCX1w5Qp6LUEWuDzsywg", (1,)),
        topic("f", "rn4HkycOToyme9fwmEtMcg", (0, 9), isr=(0,)),
        topic("t1", "ZNWGejEIT0GPZo-HmM2wpQ", (2, 0, 1), (0, 1, 2), (1, 2, 0)),
    ]
    static = entry("file.delete.delay.ms", "2000", ConfigSource.STATIC_BROKER_CONFIG)
    own = (
        entry("cleanup.policy", "compact,delete", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        entry("retention.ms", "60000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
    )
    # The size of the map counts: a topic of Kafka 3.9.1 has 38 settings.
    others = tuple(entry(f"default.{index}", "1", ConfigSource.DEFAULT_CONFIG) for index in range(35))
    settings = {topic.topic: topics.settings_shown((static, *others)) for topic in described}
    settings["a.b_c"] = topics.settings_shown((static, *own, *others))
    text = topics.described_text(described, settings, is_filtered=False, with_partitions=True)
    assert text == said("kafka-topics --describe")
    assert topics.names_text(["a.b_c", "defaults", "f", "t1"]) == said("kafka-topics --list")
    assert topics.names_text([]).out == "\n"


MEMBERS = ("node-2-cf7d26bb-53fb-42bf-b3c0-8202bec3a921", "app-1-09763890-8df8-45d2-b976-792adc88ee1a")
LOGS = (("ct", 0, 10), ("ct", 1, 8), ("ct", 2, 12), ("ct2", 0, 5))


def group(*, is_read: bool) -> DescribedGroup:
    def progress(name: str, partition: int, end: int) -> PartitionProgress:
        at = 1 if (name, partition) == ("ct", 2) else 0
        reader = (MEMBERS[at], None, "/127.0.0.1", ("app-2", "app-1")[at]) if is_read else (None, None, None, None)
        return PartitionProgress(name, partition, end, end, 0, *reader)

    members = (
        DescribedMember(MEMBERS[0], "node-2", "/127.0.0.1", "app-2", 3,
                        (AssignedTopic("ct", (0, 1)), AssignedTopic("ct2", (0,)))),
        DescribedMember(MEMBERS[1], None, "/127.0.0.1", "app-1", 1, (AssignedTopic("ct", (2,)),)),
    )  # fmt: skip
    return DescribedGroup(
        "g1",
        GroupType.CLASSIC,
        GroupState.STABLE if is_read else GroupState.EMPTY,
        "consumer",
        "range" if is_read else "",
        CoordinatorAddress(1, "127.0.0.1", 29393),
        members if is_read else (),
        tuple(progress(*log) for log in LOGS),
    )


def test_groups() -> None:
    read, left = group(is_read=True), group(is_read=False)
    describe = "kafka-consumer-groups --describe --group g1"
    # Kafka 3.7 to 3.9 forget the last line's end; releases before and after them do not.
    for nth, state in ((0, read), (1, left)):
        theirs = said(describe, nth)
        assert groups.offsets_text([state]) == KafkaText(f"{theirs.out}\n", theirs.said)
    assert groups.members_text([read], is_verbose=True) == said(f"{describe} --members --verbose")
    assert groups.states_text([read]) == said(f"{describe} --state")
    # Kafka's tool ends with a stack trace, and without a word of the group: klamm has its own words.
    worker = replace(read, protocol_type="connect", partitions=())
    both = [read, worker]
    assert groups.offsets_text(both) is groups.states_text(both) is groups.members_text(both, is_verbose=False) is None
    listed = [ListedGroup("g1", GroupType.CLASSIC, "consumer", GroupState.STABLE, 1)]
    shown = groups.listed_text(listed, with_state=True, with_type=False)
    assert shown == said("kafka-consumer-groups --list --state")
    resets = [PartitionReset("g1", name, partition, 0, end) for name, partition, end in LOGS[:3]]
    ours, theirs = groups.reset_text(resets), said("kafka-consumer-groups --reset-offsets .*")
    assert ours.out.replace("\n", "") == theirs.out.replace("\n", "")
    assert [line.split() for line in ours.out.splitlines()[2:]] == [["g1", "ct", str(p), str(e)] for p, e in
                                                                   ((2, 12), (1, 8), (0, 10))]  # fmt: skip


def test_reassignments_and_elections() -> None:
    done = PartitionStatus("grow", 0, ReassignmentState.COMPLETE, (0, 1, 2), (0, 1, 2))
    move = PartitionMove(TopicPartition("grow", 0), (0, 1, 2))
    verified = reassignment.verified_text([done], [move], (0, 1, 2), left=())
    assert verified == said("kafka-reassign-partitions --verify .*")
    of_foo = PartitionMove(TopicPartition("foo", 0), (1, 0))
    cancelled = reassignment.cancelled_text([], [of_foo], (0, 1, 2), left=())
    assert cancelled == said("kafka-reassign-partitions --cancel .*")
    # Kafka has no words for a throttle that stays, and stderr names it.
    for text in (
        reassignment.verified_text([done], [move], (0, 1, 2), left=["topic grow keeps"]),
        reassignment.cancelled_text([], [of_foo], (0, 1, 2), left=["topic grow keeps"]),
    ):
        assert ("Clearing" in text.out, text.said) == (False, "topic grow keeps\n")
    kept = reassignment.verified_text([done], [move], (0, 1, 2), left=None)
    assert ("Clearing" in kept.out, kept.said) == (False, "")
    to_dir = PartitionMove(TopicPartition("foo", 2), (0, 2), ("/data/kafka-0a", "any"))
    started = reassignment.started_text([to_dir], {to_dir.name: (0, 2)}, None, 50000)
    assert started == said("kafka-reassign-partitions --execute .*")
    elected = [PartitionElection("el", index, 0, 1, 1, ElectionResult.ELECTED) for index in (0, 1)]
    elected.append(PartitionElection("el", 2, 1, 1, 1, ElectionResult.NOT_NEEDED))
    assert reassignment.elected_text(elected, "preferred", is_of_all=True) == said("kafka-leader-election .*")


def test_settings_and_quotas() -> None:
    policy = ConfigEntry(
        "cleanup.policy", "compact,delete", ConfigSource.DYNAMIC_TOPIC_CONFIG,
        synonyms=(ConfigSynonym("cleanup.policy", "compact,delete", ConfigSource.DYNAMIC_TOPIC_CONFIG),
                  ConfigSynonym("log.cleanup.policy", "delete", ConfigSource.DEFAULT_CONFIG)),
    )  # fmt: skip
    hour = ConfigSynonym("retention.ms", "3600000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    retention = ConfigEntry(hour.name, hour.value, hour.source, synonyms=(hour,))
    of_t1 = EntityConfigs(EntityType.TOPIC, "t1", (policy, retention))
    assert configs.configs_text([of_t1], shows_all=False) == said("kafka-configs .* --entity-name t1")
    rate = ConfigEntry("producer_byte_rate", "512", ConfigSource.CLIENT_QUOTA)
    of_alice = EntityConfigs(EntityType.USER_CLIENT, "alice/app", (rate,))
    assert configs.configs_text([of_alice], shows_all=False) == said("kafka-configs .* --entity-name app")
    whole = configs.altered_text(Entity(EntityType.BROKER, None))
    assert whole.out == "Completed updating default config for brokers in the cluster.\n"


@pytest.mark.parametrize(
    ("value", "text"), [(512.0, "512.0"), (12.5, "12.5"), (1048576000.0, "1.048576E9"), (1e7, "1.0E7"), (0.0, "0.0"),
                        (9999999.0, "9999999.0"), (0.0001, "1.0E-4")],
)  # fmt: skip
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert configs.java_double(value) == text


def test_rules() -> None:
    orders = ResourcePattern(ResourceType.TOPIC, "orders")
    rules = [
        AclBinding(orders, AclEntry("User:alice", "*", AclOperation.DESCRIBE, Permission.ALLOW)),
        AclBinding(orders, AclEntry("User:alice", "*", AclOperation.READ, Permission.ALLOW)),
        AclBinding(orders, AclEntry("User:bob", "10.0.0.1", AclOperation.ALL, Permission.DENY)),
    ]
    assert acls.listed_text(rules, ()) == said("kafka-acls --list .*")
    assert acls.changed_text({"would_add": rules}) is None


def test_log_dirs_and_deleted_records() -> None:
    theirs = said("kafka-log-dirs .*")
    document = json.loads(theirs.out.splitlines()[2])
    dirs = [
        LogDir(broker["broker"], each["logDir"], each["error"], 0, 0, None, None, _replicas(each["partitions"]))
        for broker in document["brokers"]
        for each in broker["logDirs"]
    ]
    assert brokers.log_dirs_text(dirs) == theirs
    deleted = [
        RecordsDeletion("ct", index, 0, 0, 12, low, low, None, DeletionResult.DELETED, low)
        for index, low in ((0, 2), (1, 8))
    ]
    assert brokers.deletions_text(deleted) == said("kafka-delete-records .*")


def _replicas(partitions: list[dict[str, object]]) -> tuple[DirReplica, ...]:
    """Return them sorted, so that the order of the tool is found again."""
    names = sorted(str(partition["partition"]).rsplit("-", 1) for partition in partitions)
    return tuple(DirReplica(name, int(index), 0, 0, False) for name, index in names)


def test_api_versions() -> None:
    theirs = said("kafka-broker-api-versions").out
    details = []
    for host, broker, rack, body in re.findall(r"(\S+) \(id: (\d+) rack: (\w+)\) -> \((.*?)\n\)\n", theirs, re.DOTALL):
        apis = re.findall(r"(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[", body)
        offered = tuple(OfferedApi(int(key), name, int(low), int(high or low)) for name, key, low, high in apis)
        at = ListenerDescription(None, None, *_address(host))
        share = BrokerPartitions()
        report = SelfReport(apis=offered)
        details.append(BrokerDetails(int(broker), True, False, rack, (at,), None, None, None, share, {}, report))
    assert len(details) == 3
    assert brokers.api_versions_text(details).out == theirs


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def test_records() -> None:
    theirs = said("kafka-console-consumer .*")
    printed = ("timestamp", "offset", "partition", "key", "headers")
    properties = {f"print.{part}": "true" for part in printed} | {"print.value": "false"}
    record = Record(2, 1795264798615, b"k6", None, ())
    consumed = ConsumedRecord("ct", 0, record, TimestampType.CREATE_TIME)
    assert records.formatter(properties)(consumed).decode() == theirs.out
    assert records.formatter({})(consumed) == b"null\n"
    with_headers = ConsumedRecord(
        "ct", 0, Record(2, -1, None, b"v", (("a", b"1"), ("b", None))), TimestampType.CREATE_TIME
    )
    shown = {"print.timestamp": "true", "print.headers": "True ", "headers.separator": ";", "null.literal": "-"}
    assert records.formatter(shown)(with_headers) == b"NO_TIMESTAMP\ta:1;b:-\tv\n"
    with pytest.raises(ConfigError, match="has no print"):
        records.formatter({"print.colour": "true"})


KAFKAS_PACKAGE = "org.apache.kafka.common.serialization"


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("String", b"\xc3\xa4\xff", "ä\ufffd"),
        ("ByteArray", b"abc", "abc"),
        ("Bytes", b"a\\\x00 \xff", "a\\x5C\\x00 \\xFF"),
        ("Short", struct.pack(">h", -2), "-2"),
        ("Integer", struct.pack(">i", 70000), "70000"),
        ("Long", struct.pack(">q", -(1 << 63)), "-9223372036854775808"),
        ("Boolean", b"\x01", "true"),
        ("Boolean", b"\x00", "false"),
        ("UUID", b"6F9619FF-8B86-D011-B42D-00CF4FC964FF", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
        *(("Double", struct.pack(">d", number), text) for number, text in (
            (0.0, "0.0"), (-0.0, "-0.0"), (100.0, "100.0"), (0.001, "0.001"), (0.0009, "9.0E-4"), (1e7, "1.0E7"),
            (9999999.5, "9999999.5"), (-1.25e-10, "-1.25E-10"), (math.inf, "Infinity"), (-math.inf, "-Infinity"),
            (math.nan, "NaN"), (0.1 + 0.2, "0.30000000000000004"), (123456789012.0, "1.23456789012E11"),
        )),
        *(("Float", struct.pack(">f", number), text) for number, text in (
            (0.1, "0.1"), (16777216.0, "1.6777216E7"), (123456.789, "123456.79"), (math.nan, "NaN"),
            (3.4028234663852886e38, "3.4028235E38"),
        )),
    ],
)  # fmt: skip
def test_values_are_what_java_makes_of_them(kind: str, data: bytes, text: str) -> None:
    consumed = ConsumedRecord("t", 0, Record(0, 0, data, data, (("h", data),)), TimestampType.CREATE_TIME)
    for package in ("", f"{KAFKAS_PACKAGE}."):
        names = {f"{part}.deserializer": f"{package}{kind}Deserializer" for part in ("key", "value", "headers")}
        shown = {"print.key": "true", "print.headers": "true", **names}
        assert records.formatter(shown)(consumed).decode() == f"h:{text}\t{text}\t{text}\n"


@pytest.mark.parametrize(
    ("kind", "data"),
    [("Long", b"1234567"), ("Double", b"123"), ("Float", b"12345678"), ("Boolean", b"\x02"), ("UUID", b"x")],
)
def test_what_is_no_such_value_is_named_with_its_place(kind: str, data: bytes) -> None:
    printed = records.formatter({"value.deserializer": f"{kind}Deserializer"})
    consumed = ConsumedRecord("t", 3, Record(7, 0, None, data, ()), TimestampType.CREATE_TIME)
    with pytest.raises(records.BadRecord, match=rf"value is no {kind} \({len(data)} bytes?\): t-3 at offset 7"):
        printed(consumed)
    absent = consumed._replace(record=Record(7, 0, None, None, ()))
    assert printed(absent) == b"null\n"


def test_formatters_of_internal_topics() -> None:
    def line(class_name: str, key: bytes | None, value: bytes | None) -> bytes:
        record = Record(0, 0, key, value, ())
        return records.formatter({}, class_name)(ConsumedRecord("t", 0, record, TimestampType.CREATE_TIME))

    package = "org.apache.kafka.tools.consumer"
    offsets, groups = f"{package}.OffsetsMessageFormatter", f"{package}.GroupMetadataMessageFormatter"
    offset_key, group_key = encode_offset_key("g", "orders", 1), encode_group_key("g")
    offset = encode_offset_value(OffsetCommitValue(offset=5, metadata="ä", commit_timestamp=9))
    group = encode_group_value(
        GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader=None, members=[])
    )
    assert line(offsets, offset_key, offset).decode() == (
        '{"key":{"version":1,"data":{"group":"g","topic":"orders","partition":1}},"value":{"version":3,"data":'
        '{"offset":5,"leaderEpoch":-1,"metadata":"ä","commitTimestamp":9}}}\n'
    )
    assert line(offsets, offset_key, None).endswith(b',"value":null}\n')
    assert line(offsets, group_key, group) == line(groups, offset_key, offset) == line(offsets, None, offset) == b""
    assert line(groups, group_key, group).startswith(b'{"key":{"version":2,"data":{"group":"g"}},"value":{"version":3,')
    transactions = f"{package}.TransactionLogMessageFormatter"
    state = transaction_state.encode_value(
        transaction_state.TransactionLogValue(
            producer_id=1, producer_epoch=2, transaction_timeout_ms=3, transaction_status=0,
            transaction_partitions=None, transaction_last_update_timestamp_ms=4, transaction_start_timestamp_ms=5,
        )
    )  # fmt: skip
    assert line(transactions, transaction_state.encode_key("tx"), state).decode() == (
        '{"key":{"version":0,"data":{"transactionalId":"tx"}},"value":{"version":0,"data":{"producerId":1,'
        '"producerEpoch":2,"transactionTimeoutMs":3,"transactionStatus":0,"transactionPartitions":null,'
        '"transactionLastUpdateTimestampMs":4,"transactionStartTimestampMs":5}}}\n'
    )
    old_offsets = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"
    assert line(old_offsets, offset_key, offset).decode() == (
        "[g,orders,1]::OffsetAndMetadata(offset=5, leaderEpoch=Optional.empty, metadata=ä, commitTimestamp=9, "
        "expireTimestamp=None)\n"
    )
    expiring = OffsetCommitValue(offset=5, metadata="", commit_timestamp=9, expire_timestamp=10)
    assert line(old_offsets, offset_key, encode_offset_value(expiring, 1)).endswith(b", expireTimestamp=Some(10))\n")
    led = OffsetCommitValue(offset=5, leader_epoch=7, metadata="", commit_timestamp=9)
    assert b" leaderEpoch=Optional[7]," in line(old_offsets, offset_key, encode_offset_value(led))
    assert line(old_offsets, offset_key, None) == b"[g,orders,1]::NULL\n"
    assert line(old_offsets, group_key, group) == b""
    with pytest.raises(records.BadRecord, match="t-0 at offset 0; --skip-message-on-error"):
        line(offsets, offset_key, b"\x00\x03")
    assert line("kafka.tools.NoOpMessageFormatter", b"k", b"v") == b""
    assert line("kafka.tools.LoggingMessageFormatter", b"k", b"v") == b"v\n"


def test_znodes_as_the_shell_prints_them() -> None:
    def znode(path: str, data: str | None = None) -> Znode:
        return Znode(path, None, data, None, 0, 0, None, 1, 1, None, None)

    head = "Connecting to h:1/kafka\n\nWATCHER::\n\nWatchedEvent state:SyncConnected type:None path:null\n"
    tree = [znode(path) for path in ("/brokers", "/brokers/ids", "/brokers/ids/0", "/brokers/topics")]
    assert znodes.children_text("h:1/kafka", tree, is_recursive=False).out == f"{head}[ids, topics]\n"
    assert znodes.children_text("h:1/kafka", tree, is_recursive=True).out == (
        f"{head}/brokers\n/brokers/ids\n/brokers/ids/0\n/brokers/topics\n"
    )
    assert znodes.children_text("h:1/kafka", tree[2:3], is_recursive=False).out == f"{head}[]\n"
    assert znodes.data_text("h:1/kafka", znode("/controller", '{"brokerid":0}')).out == f'{head}{{"brokerid":0}}\n'
    assert znodes.data_text("h:1/kafka", znode("/brokers")).out == f"{head}null\n"


def test_hash_codes_are_javas() -> None:
    assert java_hash("") == 0
    assert java_hash("Kafka") == 72255238
    assert java_hash("polygenelubricants") == 1 << 31
    # In 16 buckets "a" (97) is first, "p" (112) before it: 112 % 16 is 0.
    assert in_hash_order(["a", "b", "p"], str) == ["p", "a", "b"]
