"""Access rules of a real Apache Kafka: klamm's changes are what kafka-acls makes, and its answers what brokers do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apache_kafka import run_tool
from golden import Seen
from json_schemas import check_json
from klamm_program import Ran, in_process
from secured_kafka import SecuredKafka, secured_kafka

from engine.admin.acls.values import AclRow, rule_of
from engine.admin.cluster.client_properties import load_client_properties
from engine.admin.cluster.wire import WireCluster
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.kafka.acls import SUPPORTED, decide
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic

Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("acls")) as running:
        yield running


@pytest.fixture
def run(kafka: SecuredKafka, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs klamm as a super user."""

    def ran(*words: str, code: int = 0, stdin: str = "") -> Ran:
        address = () if "--zookeeper" in words else ("-b", kafka.address("PLAINTEXT"))
        found = in_process(*words, *address, capture=capsys, stdin=stdin)
        assert found.code == code, (words, found.err)
        return found

    return ran


def kafka_acls(kafka: SecuredKafka, *words: str) -> str:
    done = run_tool("kafka.admin.AclCommand", "--bootstrap-server", kafka.address("PLAINTEXT"), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SAME_WORDS = [
    "--add --allow-principal User:alice --operation Read --operation DescribeConfigs --topic {own}-a --topic {own}-b",
    "--add --producer --idempotent --allow-principal User:{own} --topic {own}-p --transactional-id {own}-x",
    "--add --consumer --allow-principal User:alice --allow-host 127.0.0.1 --topic {own}- --group {own}- "
    "--resource-pattern-type prefixed",
    "--add --producer --consumer --allow-principal User:alice --allow-principal User:bob --topic {own}-both "
    "--group {own}-both",
    "--add --deny-principal User:* --deny-host 10.0.0.1 --deny-host 10.0.0.2 --operation All --topic {own}-no "
    "--allow-principal User:alice",
    "--add --allow-principal User:alice --operation Describe --delegation-token {own}-token",
    "--add --allow-principal User:alice --operation CreateTokens --user-principal User:{own}",
    "--add --allow-principal User:{own} --operation Alter --cluster",
    "--remove --allow-principal User:alice --operation Read --topic {own}-a --force",
    "--remove --topic {own}-both --force",
]


def test_the_same_words_make_the_same_rules(kafka: SecuredKafka, run: Run) -> None:
    for words in SAME_WORDS:
        run("kafka-acls", *words.format(own="ours").split())
        kafka_acls(kafka, *words.format(own="tool").split())
    listed = kafka_acls(kafka, "--list")
    blocks: dict[str, dict[str, list[str]]] = {"ours": {}, "tool": {}}
    for block in listed.split("Current ACLs for resource `")[1:]:
        pattern, _, rest = block.partition("`: ")
        rules = sorted(line.strip() for line in rest.splitlines() if line.strip())
        for own, found in blocks.items():
            if own in pattern:
                found[pattern.replace(own, "-")] = [rule.replace(own, "-") for rule in rules]
            elif "CLUSTER" in pattern:
                found[pattern] = [rule.replace(own, "-") for rule in rules if own in rule]
    assert blocks["ours"] == blocks["tool"]
    assert len(blocks["ours"]) >= 9
    # And klamm lists what the tool lists.
    shown = [row for row in run("acls", "list", "-o", "json").json if "ours" in str(row)]
    assert len(shown) == sum(map(len, blocks["ours"].values()))
    some = run("acls", "list", "--topic", "ours-a", "--resource-pattern-type", "match", "-o", "json").json
    assert {row["name"] for row in some} == {"ours-a", "ours-"}


@pytest.mark.parametrize(
    "rules",
    [
        ["allow User:alice read"],
        ["allow User:alice alter-configs", "deny User:alice describe-configs"],
        ["allow User:* all", "deny User:alice delete"],
        ["allow User:alice write 127.0.0.1", "allow User:alice alter 10.0.0.1", "deny User:bob all"],
        ["allow User:alice all", "deny * describe"],
        ["allow User:alice create", "allow User:alice describe"],
    ],
)
def test_what_klamm_explains_is_what_a_broker_allows(rules: list[str], kafka: SecuredKafka, run: Run) -> None:
    """The broker tells which operations a principal may do on a topic (KIP-430)."""
    topic = f"explained-{abs(hash(tuple(rules)))}"
    run("topics", "create", topic, "--partitions", "1", "--replication-factor", "1")
    rows = []
    for text in rules:
        permission, who, operation, *host = text.split()
        who = "User:*" if who == "*" else who
        run("acls", "add", f"--{permission}-principal", who, "--operation", operation, "--topic", topic,
            *(f"--{permission}-host={one}" for one in host))  # fmt: skip
        rows.append(AclRow("topic", topic, "literal", who, host[0] if host else "*", operation, permission))
    acls = {rule_of(row).pattern: [rule_of(one).entry for one in rows] for row in rows}
    expected = {
        operation
        for operation in SUPPORTED[ResourceType.TOPIC]
        if decide(acls, "User:alice", "127.0.0.1", operation, ResourceType.TOPIC, topic).is_allowed
    }
    found = asyncio.run(allowed(kafka, topic))
    assert found == (expected if AclOperation.DESCRIBE in expected else None)
    for operation in SUPPORTED[ResourceType.TOPIC]:
        words = ("acls", "explain", "User:alice", operation.spelling, f"topic:{topic}", "-o", "json")
        said = run(*words, code=0 if operation in expected else 1).json
        assert said["allowed"] is (operation in expected) and said["because"]


async def allowed(kafka: SecuredKafka, topic: str) -> set[AclOperation] | None:
    """Return what alice may do with a topic, by the broker; None if it hides the topic."""
    properties = load_client_properties(kafka.login("LOGIN", "SCRAM-SHA-512", "alice"))
    host, _, port = kafka.address("LOGIN").partition(":")
    wire = WireCluster([(host, int(port))], properties=properties)
    try:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        (found,) = (await wire.call_any(request)).topics
    finally:
        await wire.close()
    if found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return None
    return {one for one in AclOperation if found.topic_authorized_operations >> one.value & 1}


@pytest.mark.parametrize("kind", ["literal", "prefixed"])
def test_rules_written_to_zookeeper_are_in_force_at_once(kind: str, kafka: SecuredKafka, run: Run) -> None:
    where = ("--zookeeper", kafka.zookeeper)
    words = ("--allow-principal", "User:zoe", "--operation", "read", "--topic", f"zk-{kind}",
             "--resource-pattern-type", kind)  # fmt: skip
    run("acls", "add", *words, *where)
    mine = ("acls", "list", "--principal", "User:zoe", "-o", "json")
    assert run(*mine, *where).json == until(lambda: run(*mine).json)
    run("acls", "remove", *words, "--yes", *where)
    assert until(lambda: not run(*mine).json) and run(*mine, *where).json == []


def until(ask: Callable[[], object]) -> object:
    deadline = time.monotonic() + 20
    while not (found := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_rules_as_a_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "acls.yaml"
    words = ("--allow-principal", "User:filed", "--topic", "filed", "--operation", "write")
    run("acls", "add", *words)
    run("acls", "export", "--out", str(file))
    assert run("acls", "diff", str(file), "-o", "json").json == []
    run("acls", "remove", *words, "--yes")
    run("acls", "add", "--allow-principal", "User:besides", "--topic", "filed", "--operation", "read")
    differs = run("acls", "diff", str(file), "-o", "json", code=1).json
    assert [(row["change"], row["principal"]) for row in differs] == [
        ("missing", "User:filed"),
        ("extra", "User:besides"),
    ]
    assert run("acls", "apply", str(file), "--dry-run", "-o", "json").json[0]["change"] == "would_add"
    assert run("acls", "diff", str(file), "-o", "json", code=1).json == differs, "a dry run changes nothing"
    assert "without confirmation" in run("acls", "apply", str(file), code=2).err
    run("acls", "apply", str(file), "--yes")
    (extra,) = run("acls", "diff", str(file), "-o", "json", code=1).json
    assert extra["principal"] == "User:besides"
    run("acls", "apply", str(file), "--prune", "--yes")
    run("acls", "diff", str(file))


def test_the_json_is_as_the_schema_says(run: Run) -> None:
    run("acls", "add", "--allow-principal", "User:*", "--topic", "*")
    run("acls", "add", "--allow-principal", "User:ann", "--topic", "odd-*", "--operation", "read")
    for name, words, code in (
        ("list", ["list"], 0),
        ("explain", ["explain", "User:ann", "read", "topic:odd-1"], 0),
        ("lint", ["lint"], 1),
        ("changes", ["remove", "--topic", "*", "--yes"], 0),
    ):
        ran = run("acls", *words, "-o", "json", code=code)
        assert ran.json
        check_json(f"acls {name}", Seen(ran.code, ran.out, ran.err))
    problems = {(one["problem"], one["rule"]["principal"]) for one in run("acls", "lint", "-o", "json", code=1).json}
    assert ("never_matches", "User:ann") in problems and ("opens_everything", "User:*") not in problems


def test_who_may_not_look_is_told_so(kafka: SecuredKafka, capsys: pytest.CaptureFixture[str]) -> None:
    config = kafka.login("LOGIN", "SCRAM-SHA-512", "alice")
    where = ("-b", kafka.address("LOGIN"), "--command-config", str(config), "-o", "json")
    rule = ("--allow-principal", "User:alice", "--topic", "mine", "--operation", "read")
    for words in (("list",), ("add", *rule), ("remove", *rule, "--yes")):
        ran = in_process("acls", *words, *where, capture=capsys)
        assert (ran.code, ran.error["kind"]) == (4, "authorization"), ran.err
        assert "on the cluster" in ran.error["hint"]
