"""Access rules and users of a real Apache Kafka: klamm changes what Kafka's tools change, and says what brokers do."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shlex
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from golden import Seen, check_json
from kafka_tools import run_tool
from klamm_program import Ran, in_process
from kraft_cluster import KRaftCluster
from patience import within
from rights_story import CASES, CELLS, Cell, RightsStory, check, check_remedies
from secured_kafka import MODULES, SecuredKafka, jaas
from soak import SOAK

from engine.admin.acls.values import AclRow, rule_of
from engine.admin.cluster.client_properties import load_client_properties
from engine.admin.cluster.wire import WireCluster
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.kafka.acls import SUPPORTED, decide
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.local.addresses import own_loopback_address

Run = Callable[..., Ran]


pytestmark = pytest.mark.usefixtures("own_folder")

CELLS_OF_ONE_BROKER = [cell for cell in CELLS if CASES[cell.case].brokers == 1 and not CASES[cell.case].hangs]
"""A broker that verifies partitions of transactions lets none hang."""

_CASES = list(dict.fromkeys(cell.case for cell in CELLS_OF_ONE_BROKER))
TYPED = _CASES if SOAK > 1 else [*{case.partition(" ")[0]: case for case in _CASES}.values()]
"""Whose rules are typed until the command works, for seconds each: all in ``make soak``, otherwise one of each noun."""


@pytest.fixture(scope="module")
def story(kafka: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> RightsStory:
    folder = tmp_path_factory.mktemp("rights")
    return RightsStory(folder, kafka.address("PLAINTEXT"), kafka.address("LOGIN"), CELLS_OF_ONE_BROKER)


@pytest.mark.parametrize("cell", CELLS_OF_ONE_BROKER, ids=str)
def test_a_command_works_with_its_rights_and_says_what_it_lacks(
    cell: Cell, story: RightsStory, capsys: pytest.CaptureFixture[str]
) -> None:
    check(story, cell, capsys)


@pytest.mark.parametrize("case", TYPED)
def test_the_rules_that_klamm_names_are_those_to_add(
    case: str, story: RightsStory, capsys: pytest.CaptureFixture[str]
) -> None:
    check_remedies(story, case, capsys)


def test_the_rule_for_a_certificate_can_be_typed_as_it_stands(
    kafka: SecuredKafka, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names in certificates have blanks, commas and quotes."""
    store = kafka.ca.sign('Alice "al" O\'Neil, of A & B').write_pem(kafka.folder / "odd.pem")
    config = kafka.client("MUTUAL", ssl_keystore_type="PEM", ssl_keystore_location=str(store))
    run("topics", "create", "odd", "--partitions", "1", "--replication-factor", "1")
    asked = ("topics", "describe", "odd", "-b", kafka.address("MUTUAL"), "--command-config", config, "-o", "plain")
    refused = in_process(*asked, capture=capsys)
    (rule,) = re.findall(r"klamm (acls add .*)", refused.err)
    assert refused.code == 4
    run(*shlex.split(rule))
    until(lambda: in_process(*asked, capture=capsys).code == 0)


@pytest.fixture
def run(kafka: SecuredKafka, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs klamm as a super user."""

    def ran(*words: str, code: int = 0, stdin: str = "") -> Ran:
        address = () if "--zookeeper" in words else ("-b", kafka.address("PLAINTEXT"))
        ran_command = in_process(*words, *address, capture=capsys, stdin=stdin)
        assert ran_command.code == code, (words, ran_command.err)
        return ran_command

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
            *(f"--{permission}-host={address}" for address in host))  # fmt: skip
        rows.append(AclRow("topic", topic, "literal", who, host[0] if host else "*", operation, permission))
    acls = {rule_of(row).pattern: [rule_of(row).entry for row in rows] for row in rows}
    expected = {
        operation
        for operation in SUPPORTED[ResourceType.TOPIC]
        if decide(acls, "User:alice", "127.0.0.1", operation, ResourceType.TOPIC, topic).is_allowed
    }
    topics = asyncio.run(allowed(kafka, topic))
    assert topics == (expected if AclOperation.DESCRIBE in expected else None)
    for operation in SUPPORTED[ResourceType.TOPIC]:
        words = ("acls", "explain", "User:alice", operation.spelling, f"topic:{topic}", "-o", "json")
        said = run(*words, code=0 if operation in expected else 1).json
        assert said["allowed"] is (operation in expected)
        assert said["because"].startswith("a rule says") or "brokers do not show who (super.users)" in said["because"]


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
        (described,) = (await wire.call_any(request)).topics
    finally:
        await wire.close()
    if described.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return None
    return {operation for operation in AclOperation if described.topic_authorized_operations >> operation.value & 1}


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
    is_in_time = within(20)
    while not (answer := ask()):
        assert is_in_time()
        time.sleep(0.05)
    return answer


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
    assert "has all rules of the file already" in run("acls", "apply", str(file), "--yes").err
    run("acls", "apply", str(file), "--prune", "--yes")
    assert "has the rules of the file, and no others" in run("acls", "diff", str(file)).err


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
    problems = {
        (finding["problem"], finding["rule"]["principal"]) for finding in run("acls", "lint", "-o", "json", code=1).json
    }
    assert ("never_matches", "User:ann") in problems and ("opens_everything", "User:*") not in problems


def test_who_may_not_look_is_told_so(kafka: SecuredKafka, capsys: pytest.CaptureFixture[str]) -> None:
    config = kafka.login("LOGIN", "SCRAM-SHA-512", "alice")
    where = ("-b", kafka.address("LOGIN"), "--command-config", str(config), "-o", "json")
    rule = ("--allow-principal", "User:alice", "--topic", "mine", "--operation", "read")
    for words in (("list",), ("add", *rule), ("remove", *rule, "--yes")):
        ran = in_process("acls", *words, *where, capture=capsys)
        assert (ran.code, ran.error["kind"]) == (4, "authorization"), ran.err
        assert "--cluster-resource" in ran.error["hint"]


def test_the_dashboard_marks_what_somebody_may_not_see(
    kafka: SecuredKafka,
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "180")
    # The first by name: only one of the topics with hidden settings is named.
    run("topics", "create", "a-seen", "--partitions", "1", "--replication-factor", "1")
    run("acls", "add", "--allow-principal", "User:alice", "--topic", "a-seen", "--operation", "describe")
    # Everybody else may see what belongs to strangers.
    run("acls", "add", "--deny-principal", "User:alice", "--topic", "strange-", "--resource-pattern-type", "prefixed",
        "--operation", "describe")  # fmt: skip
    picture, config = tmp_path / "top.svg", kafka.login("LOGIN", "SCRAM-SHA-512", "alice")
    where = ("-b", kafka.address("LOGIN"), "--command-config", str(config))
    ran = in_process("top", "--screen", "topics", "--screenshot", picture, *where, capture=capsys)
    assert ran.code == 0, ran.err
    shown = html.unescape(re.sub(r"<[^>]+>", "\n", picture.read_text("utf-8"))).replace("\xa0", " ")
    assert "as User:alice" in shown and "a-seen" in shown and "unreachable" not in shown
    (lacks,) = (line for line in shown.splitlines() if "User:alice lacks" in line)
    assert "describe on the cluster" in lacks and "describe-configs on topic a-seen" in lacks
    lines = [line.strip() for line in shown.splitlines() if "⊘" in line]
    assert lines.count("⊘") >= 3, "before what is lacking, in place of the topic's size, and of its settings"
    assert "settings: ⊘" in lines


def test_a_dry_run_of_a_cancellation_asks_for_the_right_to_stop_moves_between_log_dirs(
    kafka: SecuredKafka, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else is under way: the brokers keep no list of these moves."""
    throttle = "replica.alter.log.dirs.io.max.bytes.per.second"
    run("configs", "alter", "--broker", "0", "--add-config", f"{throttle}=1", "--yes")
    run("topics", "create", "moves", "--partitions", "1", "--replication-factor", "1")
    run("produce", "moves", stdin="x" * 900_000 + "\n" + "y" * 900_000 + "\n" + "z" * 900_000 + "\n")
    dirs = run("brokers", "log-dirs", "--topic-list", "moves", "-o", "json").json
    (free,) = (log_dir["log_dir"] for log_dir in dirs if not log_dir["replicas"])
    plan = {"version": 1, "partitions": [{"topic": "moves", "partition": 0, "replicas": [0], "log_dirs": [free]}]}
    (file := tmp_path / "plan.json").write_text(json.dumps(plan))
    named = ("--reassignment-json-file", str(file))
    run("reassign", "execute", *named, "--yes", "--no-wait", code=5)
    alice = ("-b", kafka.address("LOGIN"), "--command-config", kafka.login("LOGIN", "SCRAM-SHA-512", "alice"))
    rule = ("--allow-principal", "User:alice", "--cluster-resource")

    def says(code: int, *parts: str) -> object:
        def is_said() -> bool:
            ran = in_process("reassign", "cancel", *named, "--dry-run", *alice, capture=capsys)
            return ran.code == code and all(part in ran.err for part in parts)

        return until(is_said)

    try:
        run("acls", "add", *rule, "--operation", "describe")
        says(4, "stop 1 move between log dirs", "User:alice lacks alter on the cluster")
        run("acls", "add", *rule, "--operation", "alter")
        says(0, "stop 1 move between log dirs")
        assert run("reassign", "cancel", *named, "--yes").err.count("stays in its log dir on broker 0") == 1
        says(0, "none of the partition reassignments are active")
    finally:
        run("acls", "remove", *rule, "--operation", "describe", "--operation", "alter", "--yes")
        run("configs", "alter", "--broker", "0", "--delete-config", throttle, "--yes")


SECRET = 'n3w, "Secr3t" = ü'


def logs_in(kafka: SecuredKafka, mechanism: str, user: str, password: str, capture: pytest.CaptureFixture[str]) -> bool:
    """Whether a user can log in with a password; rights do not matter."""
    config = kafka.login("LOGIN", mechanism, user, password)
    where = ("-b", kafka.address("LOGIN"), "--command-config", str(config), "-o", "json")
    ran = in_process("topics", "list", *where, capture=capture)
    assert ran.code in (0, 3), ran.err
    return ran.code == 0


@pytest.mark.parametrize("by", ["wire", "znode"])
def test_users_get_passwords_and_lose_them(
    by: str, kafka: SecuredKafka, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--zookeeper", kafka.zookeeper) if by == "znode" else ()
    user = f"new {by}"
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n", "utf-8")
    quota = ("--entity-type", "users", "--entity-name", user)
    run("configs", "alter", *quota, "--add-config", "producer_byte_rate=1024", "--yes")
    for mechanism, rounds in (("scram-sha-512", ()), ("scram-sha-256", ("--iterations", "4096"))):
        words = ("users", "set", user, "--mechanism", mechanism, "--password-file", str(secret), *rounds)
        assert run(*words, "--dry-run", "-o", "json", *where).json[0]["change"] == "would_set"
        done = run(*words, "-v", "-o", "json", *where)
        assert (done.json, SECRET in done.err) == (
            [{"user": user, "mechanism": mechanism.upper(), "change": "set"}],
            False,
        )
        check_json("users changes", Seen(done.code, done.out, done.err))
        until(lambda: logs_in(kafka, mechanism.upper(), user, SECRET, capsys))  # noqa: B023
        assert not logs_in(kafka, mechanism.upper(), user, "wr0ng", capsys)
    listed = run("users", "list", user, "-o", "json", *where)
    check_json("users list", Seen(listed.code, listed.out, listed.err))
    assert [(credential["mechanism"], credential["iterations"]) for credential in listed.json] == [
        ("SCRAM-SHA-256", 4096),
        ("SCRAM-SHA-512", 8192),
    ]
    assert listed.json == [row for row in run("users", "list", "-o", "json").json if row["user"] == user]
    assert "without confirmation" in run("users", "remove", user, code=2).err
    run("users", "remove", user, "--mechanism", "scram-sha-256", "--yes", *where)
    until(lambda: not logs_in(kafka, "SCRAM-SHA-256", user, SECRET, capsys))
    assert logs_in(kafka, "SCRAM-SHA-512", user, SECRET, capsys)
    last = run("users", "remove", user, "--yes", *where)
    assert f"klamm acls remove --all-of 'User:{user}'" in last.err and "open connections stay" in last.err
    assert until(lambda: not run("users", "list", user, "-o", "json").json)
    kept = run("configs", "describe", *quota, "-o", "json").json
    assert [(config["name"], config["value"]) for config in kept["configs"]] == [("producer_byte_rate", "1024.0")]
    assert run("users", "remove", user, "--yes", "-o", "json", *where, code=2).error["kind"] == "not_found"


def test_kafka_configs_sets_passwords_too(
    kafka: SecuredKafka, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entity = ("--alter", "--entity-type", "users", "--entity-name", "tool")
    done = run("kafka-configs", *entity, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=s3cret]", "-v")
    assert "s3cret" not in done.out + done.err
    assert until(lambda: logs_in(kafka, "SCRAM-SHA-256", "tool", "s3cret", capsys))
    monkeypatch.setenv("KLAMM_NEW_PASSWORD", "an0ther")
    run("users", "set", "tool", "--mechanism", "scram-sha-256")
    assert until(lambda: logs_in(kafka, "SCRAM-SHA-256", "tool", "an0ther", capsys))
    run("kafka-configs", *entity, "--delete-config", "SCRAM-SHA-256")
    assert until(lambda: not run("users", "list", "tool", "-o", "json").json)
    for words, said in (
        (("--iterations", "5"), "4096 to 16384"),
        (("--mechanism", "plain"), "no such mechanism"),
    ):
        assert said in run("users", "set", "tool", *words, code=2).err
    monkeypatch.delenv("KLAMM_NEW_PASSWORD")
    assert "KLAMM_NEW_PASSWORD" in run("users", "set", "tool", code=2).err


def test_tokens_are_made_used_renewed_and_ended(kafka: SecuredKafka, capsys: pytest.CaptureFixture[str]) -> None:
    config = kafka.login("LOGIN", "SCRAM-SHA-512")

    def done(*words: str, code: int = 0, config: Path = config) -> Ran:
        where = ("-b", kafka.address("LOGIN"), "--command-config", str(config), "-o", "json")
        # What the user names comes last, behind "--": one id in 64 begins with a hyphen.
        ran = in_process(*words[:2], *where, *words[2:], capture=capsys)
        assert ran.code == code, ran.err
        return ran

    assert done("tokens", "create", "--dry-run").json == []
    made = done("tokens", "create", "--max-life-time-period", "1h", "--renewer-principal", "User:alice", "-v")
    check_json("tokens list", Seen(made.code, made.out, made.err))
    (token,) = made.json
    assert (token["owner"], token["renewers"]) == ("User:admin", ["User:alice"])
    issued, ends = (datetime.fromisoformat(token[moment]) for moment in ("issued", "ends"))
    assert ends - issued == timedelta(hours=1)
    assert token["hmac"] not in made.err
    login = jaas("SCRAM-SHA-512", username=token["token_id"], password=token["hmac"], tokenauth="true")
    with_token = kafka.client("LOGIN", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=login)
    until(lambda: in_process("topics", "list", "-b", kafka.address("LOGIN"), "--command-config", str(with_token),
                             capture=capsys).code == 0)  # fmt: skip
    assert "not by a token" in done("tokens", "create", config=with_token, code=4).error["hint"]
    mine = ("tokens", "list", "--owner-principal", "User:admin")
    listed = done(*mine)
    assert listed.json == [token | {"hmac": None}]
    theirs = run_tool(
        "org.apache.kafka.tools.DelegationTokenCommand", "--bootstrap-server", kafka.address("LOGIN"),
        "--command-config", str(config), "--describe", "--owner-principal", "User:admin",
    ).stdout  # fmt: skip
    assert token["token_id"] in theirs and token["hmac"] in theirs
    assert done(*mine, "--show-hmac").json == [token]
    renewed = done("tokens", "renew", "--renew-time-period", "10m", "--", token["token_id"])
    check_json("tokens expiry", Seen(renewed.code, renewed.out, renewed.err))
    assert renewed.json["expires"] < token["expires"], "ten minutes, not an hour"
    assert done("kafka-delegation-tokens", "--renew", "--renew-time-period", "-1", "--hmac", token["hmac"]).json
    assert "without confirmation" in done("tokens", "expire", "--", token["token_id"], code=2).error["message"]
    done("tokens", "expire", "--yes", "--", token["token_id"])
    assert until(lambda: not done(*mine).json)
    for words in (("renew", token["token_id"]), ("expire", "--hmac", token["hmac"], "--yes")):
        assert done("tokens", *words, code=2).error["kind"] == "not_found"
    assert "base64" in done("tokens", "renew", "--hmac", "no?", code=2).error["message"]


def test_rules_users_and_tokens_of_kafka_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without ZooKeeper, with Kafka's own authorizer of KRaft."""
    host = own_loopback_address()
    login_address = f"{host}:21310"
    settings = {
        "listeners": f"PLAINTEXT://{host}:21302,CONTROLLER://{host}:21303,LOGIN://{login_address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.login.scram-sha-512.sasl.jaas.config": f"{MODULES['SCRAM-SHA-512']} required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "token-Secr3t",
    }
    secret = tmp_path / "secret"
    secret.write_text(SECRET, "utf-8")

    def login(name: str, user: str, password: str, **more: str) -> tuple[str, ...]:
        config = tmp_path / f"{name}.properties"
        module = jaas("SCRAM-SHA-512", username=user, password=password, **more)
        text = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={module}\n"
        config.write_text(text, "latin-1")
        return ("-b", login_address, "--command-config", str(config))

    def ran(*words: str, where: tuple[str, ...] = ("-b", f"{host}:21302"), code: int = 0) -> Ran:
        finished = in_process(*words[:2], *where, "-o", "json", *words[2:], capture=capsys)
        assert finished.code == code, (words, finished.err)
        return finished

    with KRaftCluster(tmp_path, host=host, nodes=1, overrides=settings):
        alice = login("alice", "alice", SECRET)
        assert ran("users", "set", "alice", "--password-file", str(secret)).json[0]["change"] == "set"
        until(lambda: in_process("topics", "list", *alice, capture=capsys).code == 0)
        assert [credential["iterations"] for credential in ran("users", "list").json] == [8192]
        for words in (("users", "list"), ("acls", "list"), ("users", "remove", "alice", "--yes")):
            refused = ran(*words, where=alice, code=4)
            assert (refused.error["principal"], refused.error["resource"]) == ("User:alice", "cluster")
        ran("topics", "create", "orders", "--partitions", "1")
        assert ran("topics", "list", where=alice).json == []
        rule = ("--allow-principal", "User:alice", "--operation", "read", "--topic", "ord",
                "--resource-pattern-type", "prefixed")  # fmt: skip
        no = ran("acls", "explain", "User:alice", "read", "topic:orders", code=1).json
        assert "do not show who (super.users)" in no["because"]
        ran("acls", "add", *rule)
        until(lambda: ran("topics", "list", where=alice).json)
        assert ran("acls", "explain", "User:alice", "describe", "topic:orders").json["allowed"]
        assert [rule["pattern_type"] for rule in ran("acls", "list").json] == ["prefixed"]
        (token,) = ran("tokens", "create", "--max-life-time-period", "1h", where=alice).json
        with_token = login("token", token["token_id"], token["hmac"], tokenauth="true")
        until(lambda: in_process("topics", "list", *with_token, capture=capsys).code == 0)
        assert ran("tokens", "list", where=alice).json == [token | {"hmac": None}]
        ran("tokens", "renew", "--renew-time-period", "10m", "--", token["token_id"], where=alice)
        ran("tokens", "expire", "--yes", "--", token["token_id"], where=alice)
        assert until(lambda: not ran("tokens", "list", where=alice).json)
        ran("acls", "remove", *rule, "--yes")
        assert until(lambda: not ran("acls", "list").json)
        ran("users", "remove", "alice", "--yes")
        until(lambda: in_process("topics", "list", *alice, capture=capsys).code == 3)
