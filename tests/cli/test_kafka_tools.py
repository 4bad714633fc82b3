"""Kafka's tools by their own names and options: the equivalents here, which must exist."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from klamm_program import environment, in_process, klamm
from typer._click.exceptions import UsageError

from cli.framework.kafka_tools import Drop, Milliseconds, Minutes, Properties, Refuse, Rename, Word, translate
from cli.framework.root import load
from cli.main import root_command
from cli.reference import TOOLS_PAGE, tools_page
from cli.table_of_commands import ENTRIES
from cli.table_of_kafka_tools import ABSENT_TOOLS, TOOLS

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kafka-tools"
ABSENT_OPTIONS = json.loads((FIXTURES / "absent-options.json").read_text("utf-8"))

LINES = [
    ("kafka-topics --list --bootstrap-server h:1", "topics list --bootstrap-server h:1"),
    ("kafka-topics.sh --zookeeper h:1 --describe --topic t", "topics describe --zookeeper h:1 --topic t"),
    (
        "kafka-topics --create --topic t --partitions 3 --replication-factor=2 --config a=b --if-not-exists",
        "topics create --topic t --partitions 3 --replication-factor=2 --config a=b --if-not-exists --yes",
    ),
    ("kafka-topics --delete --topic t --force --if-exists", "topics delete --topic t --if-exists --force --yes"),
    ("kafka-topics --force --create --topic t", "topics create --topic t --yes"),
    ("kafka-topics --force --list", "topics list"),
    ("kafka-topics --describe --under-replicated-partitions", "topics describe --under-replicated-partitions"),
    ("kafka-topics --describe --partition-size-limit-per-response 5 --topic t", "topics describe --topic t"),
    (
        "kafka-configs --alter --entity-type topics --entity-name t --add-config a=[b,c] --force",
        "configs alter --entity-type topics --entity-name t --add-config a=[b,c] --force --yes",
    ),
    (
        "kafka-leader-election --election-type PREFERRED --topic t --partition 0 --admin.config f",
        "elect preferred --topic t --partition 0 --command-config f --yes",
    ),
    (
        "kafka-leader-election --all-topic-partitions --election-type=unclean",
        "elect unclean --all-topic-partitions --yes",
    ),
    (
        "kafka-preferred-replica-election --zookeeper h:1",
        "elect preferred --zookeeper h:1 --all-topic-partitions --yes",
    ),
    (
        "kafka-preferred-replica-election --path-to-json-file=f --bootstrap-server h:1",
        "elect preferred --path-to-json-file=f --bootstrap-server h:1 --yes",
    ),
    (
        "kafka-reassign-partitions --generate --topics-to-move-json-file f --broker-list 0,1 --disable-rack-aware",
        "reassign generate --topics-to-move-json-file f --broker-list 0,1 --disable-rack-aware",
    ),
    (
        "kafka-reassign-partitions --execute --reassignment-json-file f --throttle 9 --timeout 10000 --additional",
        "reassign execute --reassignment-json-file f --throttle 9 --timeout 10 --additional --yes"
        " --allow-replication-factor-change --started-is-done",
    ),
    (
        "kafka-reassign-partitions --reassignment-json-file f --replica-alter-log-dirs-throttle 5 --execute",
        "reassign execute --reassignment-json-file f --replica-alter-log-dirs-throttle 5 --yes"
        " --allow-replication-factor-change --started-is-done",
    ),
    (
        "kafka-reassign-partitions --verify --reassignment-json-file f --preserve-throttles",
        "reassign verify --reassignment-json-file f --preserve-throttles",
    ),
    (
        "kafka-reassign-partitions --cancel --timeout=1500 --reassignment-json-file f",
        "reassign cancel --timeout 1.5 --reassignment-json-file f --yes",
    ),
    ("kafka-reassign-partitions --list", "reassign list"),
    ("kafka-consumer-groups --list --state", "groups list --state"),
    ("kafka-consumer-groups.sh --bootstrap-server h:1 --list --type classic --state Stable,Empty",
     "groups list --bootstrap-server h:1 --type classic --state Stable,Empty"),
    (
        "kafka-consumer-groups --describe --group g --members --verbose --timeout 5000",
        "groups describe --group g --members --verbose --timeout 5",
    ),
    (
        "kafka-consumer-groups --reset-offsets --group g --topic t:0,1 --shift-by -5 --execute --export",
        "groups reset-offsets --group g --topic t:0,1 --shift-by -5 --execute --export --yes",
    ),
    ("kafka-consumer-groups --delete --group g --group h", "groups delete --group g --group h --yes"),
    ("kafka-consumer-groups --delete-offsets --group g --topic t", "groups delete-offsets --group g --topic t --yes"),
    (
        "kafka-log-dirs --describe --broker-list 0,1 --topic-list a,b",
        "brokers log-dirs --broker-list 0,1 --topic-list a,b",
    ),
    ("kafka-broker-api-versions --bootstrap-server h:1", "brokers describe --api-versions --bootstrap-server h:1"),
    (
        "kafka-get-offsets --broker-list h:1 --topic t --time -1 --offsets 1 --max-wait-ms 9",
        "offsets --bootstrap-server h:1 --topic t --time -1",
    ),
    (
        "kafka-get-offsets --topic-partitions t:0-3 --exclude-internal-topics",
        "offsets --topic-partitions t:0-3 --exclude-internal-topics",
    ),
    ("kafka-delete-records --offset-json-file f", "records delete --offset-json-file f --yes"),
    (
        "kafka-replica-verification --broker-list h:1 --topic-white-list 't.*' --fetch-size 9 --report-interval-ms=5",
        "replicas verify --bootstrap-server h:1 --topic 't.*'",
    ),
    (
        "kafka-replica-verification --broker-list h:1 --topics-include t --time -2 --max-wait-ms 9",
        "replicas verify --bootstrap-server h:1 --topic t",
    ),
    (
        "kafka-dump-log --files a,b --print-data-log --max-message-size 5",
        "dump --files a,b --print-data-log",
    ),
    (
        "kafka.tools.StateChangeLogMerger --logs a,b --topic t --partitions 0,1 --start-time '2026-11-21 12:00:00,000'",
        "state-changes merge --logs a,b --topic t --partitions 0,1 --start-time '2026-11-21 12:00:00,000'",
    ),
    (
        "kafka-transactions --bootstrap-server h:1 --command-config f list --duration-filter 60000",
        "transactions list --bootstrap-server h:1 --command-config f --duration-filter 60",
    ),
    (
        "kafka-transactions.sh --bootstrap-server h:1 describe --transactional-id abort",
        "transactions describe --bootstrap-server h:1 --transactional-id abort",
    ),
    (
        "kafka-transactions --bootstrap-server h:1 describe-producers --topic list --partition 0 --broker-id 2",
        "transactions producers --bootstrap-server h:1 --topic list --partition 0 --broker-id 2",
    ),
    (
        "kafka-transactions --bootstrap-server h:1 find-hanging --max-transaction-timeout 20 --topic t --partition 1",
        "transactions find-hanging --bootstrap-server h:1 --max-transaction-timeout 20m --topic t --partition 1",
    ),
    (
        "kafka-transactions --bootstrap-server h:1 abort --topic t --partition 1 --start-offset 7",
        "transactions abort --force --bootstrap-server h:1 --topic t --partition 1 --start-offset 7 --yes",
    ),
    (
        "kafka-transactions --bootstrap-server h:1 force-terminate --transactional-id x",
        "transactions force-terminate --bootstrap-server h:1 --transactional-id x --yes",
    ),
    ("zookeeper-shell.sh 10.0.0.1:2181/kafka get /controller", "zk get /controller --zookeeper 10.0.0.1:2181/kafka"),
    ("zookeeper-shell h:1 ls /brokers --depth 1", "zk tree /brokers --depth 1 --zookeeper h:1"),
    (
        "zookeeper-security-migration --zookeeper.acl=secure --zookeeper.connect z:1 --enable.path.check "
        "--zookeeper.connection.timeout 5000 --zookeeper.session.timeout 9000 --zk-tls-config-file f",
        "zk secure --zookeeper z:1 --enable-path-check --timeout 5 --zk-tls-config-file f --yes",
    ),
    (
        "zookeeper-security-migration.sh --zookeeper.acl unsecure --zookeeper.connect z:1",
        "zk open --zookeeper z:1 --yes",
    ),
    (
        "kafka-cluster cluster-id --bootstrap-server h:1 --config f",
        "cluster describe --bootstrap-server h:1 --command-config f",
    ),
    (
        "kafka-console-producer --broker-list h:1 --topic t --compression-codec=gzip --request-required-acks -1",
        "produce --bootstrap-server h:1 --topic t --compression gzip --acks all",
    ),
    (
        "kafka-console-producer --compression-codec --topic t --producer.config f",
        "produce --compression gzip --topic t --producer.config f",
    ),
    ("kafka-console-producer --topic t --compression-codec", "produce --topic t --compression gzip"),
    (
        "kafka-console-producer --topic t --sync --timeout 1000 --batch-size 9 --max-block-ms 9 --max-memory-bytes 9 "
        "--max-partition-memory-bytes 9 --message-send-max-retries 9 --metadata-expiry-ms 9 --request-timeout-ms=9 "
        "--retry-backoff-ms 9 --socket-buffer-size 9",
        "produce --topic t",
    ),
    (
        "kafka-console-producer --topic t --property parse.key=true --property key.separator=' '",
        "produce --topic t --property parse.key=true --property key.separator=' '",
    ),
    ("kafka-console-consumer --topic t --consumer.config f", "consume --topic t --consumer.config f"),
    ("kafka-console-consumer --whitelist t.*", "consume --topic 't.*'"),
    (
        "kafka-console-consumer --topic t --property print.key=true --property key.separator=' %' "
        "--skip-message-on-error",
        "consume --topic t --property print.key=true --property key.separator=' %' --skip-message-on-error",
    ),
    ("kafka-server-start s.properties --override broker.id=1", "broker start s.properties --override broker.id=1"),
    ("zookeeper-server-start.sh zookeeper.properties", "zookeeper start zookeeper.properties"),
    (
        "kafka-console-consumer --topic t --from-beginning --isolation-level read_committed",
        "consume --topic t --from-beginning --isolation read-committed",
    ),
    (
        "kafka-producer-perf-test --topic t --num-records 5 --record-size 9 --throughput -1 --producer-props acks=1 "
        "bootstrap.servers=h:1",
        "perf producer --topic t --num-records 5 --record-size 9 --throughput -1 --producer-props acks=1 "
        "bootstrap.servers=h:1",
    ),
    (
        "kafka-consumer-perf-test.sh --broker-list h:1 --topic t --messages 5 --timeout 10000 --hide-header",
        "perf consumer --bootstrap-server h:1 --topic t --messages 5 --timeout 10 --hide-header",
    ),
    (
        "kafka-acls.sh --bootstrap-server h:1 --add --allow-principal User:a --operation All --cluster --force",
        "acls add --bootstrap-server h:1 --allow-principal User:a --operation All --cluster-resource --yes",
    ),
    (
        "kafka-acls --authorizer kafka.AclAuthorizer --authorizer-properties zookeeper.connect=h:1/x"
        " --list --topic t",
        "acls list --zookeeper h:1/x --topic t",
    ),
    (
        "kafka-delegation-tokens --create --max-life-time-period -1 --renewer-principal User:a",
        "tokens create --max-life-time-period -1 --renewer-principal User:a --yes",
    ),
    (
        "kafka-delegation-tokens --renew --renew-time-period 5000 --hmac x",
        "tokens renew --renew-time-period 5 --hmac x --yes",
    ),
    (
        "kafka-delegation-tokens --expire --expiry-time-period -1 --hmac x",
        "tokens expire --expiry-time-period -1 --hmac x --yes",
    ),
    ("kafka-delegation-tokens --describe --owner-principal User:a", "tokens list --owner-principal User:a"),
    ("kafka-acls --remove --topic t --bootstrap-server h:1", "acls remove --topic t --bootstrap-server h:1 --yes"),
]  # fmt: skip


@pytest.mark.parametrize(("theirs", "ours"), LINES, ids=lambda line: line[:60])
def test_a_tools_line_is_one_of_ours_and_ours_exists(theirs: str, ours: str) -> None:
    translated = translate(TOOLS, shlex.split(theirs))
    assert translated is not None
    assert sorted(translated) == sorted(shlex.split(ours))
    assert translated[:1] == shlex.split(ours)[:1]
    root = root_command()
    words = shlex.split(theirs)
    with root.make_context("klamm", list(words)) as context:
        name, command, rest = root.resolve_command(context, words)
        while hasattr(command, "commands"):
            name, command, rest = command.resolve_command(context, rest)
        assert command is not None
        command.make_context(name, rest, parent=context)


def test_every_tool_and_every_change_is_tried() -> None:
    tried = " ".join(theirs for theirs, _ in LINES)
    for tool in TOOLS:
        lines = [theirs for theirs, _ in LINES if theirs.split()[0].removesuffix(".sh") == tool.name]
        assert lines, tool.name
        for option, change in tool.options.items():
            if isinstance(change, Refuse):
                continue
            if not isinstance(change, Drop | Rename | Milliseconds | Minutes | Word | Properties):
                raise AssertionError(change)
            assert option in tried, (tool.name, option)


NO_JAVA = "klamm loads no Java classes; it has "


@pytest.mark.parametrize(
    ("tool", "words", "told"),
    [
        ("consumer", "--property key.deserializer=x", f"--property key.deserializer=x: {NO_JAVA}StringDeserializer, "),
        ("consumer", "--value-deserializer io.x.LongDeserializer", "io.x.LongDeserializer: klamm loads no Java"),
        ("consumer", "--property print.colour=true", "kafka-console-consumer has no print.colour; it has print.time"),
        ("consumer", "--property print.key", "--property must be NAME=VALUE, not 'print.key'"),
        ("consumer", "--formatter io.x.Formatter", f"--formatter io.x.Formatter: {NO_JAVA}DefaultMessageFormatter, "),
        ("consumer", "--formatter NoOpMessageFormatter --format %s", "--format excludes --property"),
        ("consumer", "--consumer-property sasl.mechanism=PLAIN", "what it takes to connect is for a file"),
        ("consumer", "--consumer-property group.instance.id=1", "klamm's client has no such setting"),
        ("consumer", "--consumer-property group.id=a --group b", "--group b and group.id=a differ"),
        ("consumer", "--consumer-property auto.offset.reset=none", "must be earliest or latest, not 'none'"),
        ("consumer", "--from-beginning --consumer-property auto.offset.reset=latest", "exclude each other"),
        ("consumer", "--consumer-property isolation.level=x", "--isolation must be read-uncommitted or"),
        ("producer", "--line-reader io.x.Reader", "--line-reader io.x.Reader: klamm loads no Java classes"),
        ("producer", "--property parse.keys=true", "kafka-console-producer has no parse.keys; it has parse.key, "),
        ("producer", "--property key.separator=", "--property key.separator is empty"),
        ("producer", "--property parse.key=true --headers", "--property excludes --headers"),
        ("producer", "--property parse.key=true --input jsonl", "--property and --line-reader are for --input lines"),
        ("producer", "--producer-property acks=2", "--acks must be all, 1 or 0, not '2'"),
        ("producer", "--producer-property transactional.id=t", "klamm's client has no such setting"),
        ("producer", "--reader-config /nowhere/f", "no such file: /nowhere/f"),
    ],
)
def test_what_the_console_tools_lack_here_is_refused_by_name(
    tool: str, words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (f"kafka-console-{tool}", "--topic", "t", *words.split(), "--bootstrap-server", "127.0.0.1:1")
    ran = in_process(*line, capture=capsys)
    assert (ran.code, told in ran.err) == (2, True), ran.err


def test_a_setting_of_a_file_that_klamms_client_lacks_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("group.id=g\ngroup.instance.id=1\n")
    words = ("--consumer.config", str(file), "--timeout", "1", "-b", "127.0.0.1:1")
    ran = in_process("kafka-console-consumer", "--topic", "t", *words, capture=capsys)
    assert ran.code == 3
    assert f"warning: {file}: klamm's client has no group.instance.id, and goes on without it" in ran.err


def test_a_setting_that_no_client_has_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--consumer-property", "max.poll.record=1", "--consumer-property", "fetch.min.bytes=1", "--timeout", "1")
    ran = in_process("kafka-console-consumer", "--topic", "t", "-b", "127.0.0.1:1", *words, capture=capsys)
    told = [line for line in ran.err.splitlines() if line.startswith("warning: ")]
    assert (ran.code, told) == (
        3,
        ["warning: --consumer-property max.poll.record: no client has this setting; max.poll.records?"],
    )


@pytest.mark.parametrize(("tool", "instead"), [(name, tool.instead) for name, tool in ABSENT_TOOLS.items()])
def test_a_tool_that_is_not_here_is_not_taken_for_another(
    tool: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = in_process(f"{tool}.sh", "--bootstrap-server", "h:1", capture=capsys)
    assert (ran.code, ran.err.splitlines()[0]) == (2, f"error: no such command: {tool}.sh ({instead}): klamm")


@pytest.mark.parametrize("options", ["", "-daemon -name job -loggc "])
@pytest.mark.parametrize("package", ["kafka.admin.", "org.apache.kafka.tools.consumer.group.", ""])
def test_a_class_that_articles_run_is_its_tool(package: str, options: str) -> None:
    for tool in TOOLS:
        line = shlex.split(f"kafka-run-class.sh {options}{package}{tool.main} --help")
        assert translate(TOOLS, line) == translate(TOOLS, [tool.name, "--help"])


def test_a_class_that_is_no_tool_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for rest in ([], ["-name", "x"], ["kafka.tools.JmxTool"], ["kafka-topics"], ["None"]):
        assert translate(TOOLS, ["kafka-run-class", *rest]) is None
    ran = in_process("kafka-run-class.sh", "kafka.tools.Other", "--list", capture=capsys)
    assert (ran.code, "the classes of Kafka's tools, such as kafka.admin.TopicCommand" in ran.err) == (2, True)


def test_names_are_given_once() -> None:
    names = [tool.name for tool in TOOLS]
    assert len(set(names)) == len(names)
    assert len({tool.main for tool in TOOLS}) == len(TOOLS)
    assert not set(names) & {word for entry in ENTRIES for word in (entry.name, *entry.aliases)}


def test_what_is_no_tool_is_left_alone() -> None:
    assert translate(TOOLS, ["topics", "--list"]) is None


def test_a_value_that_is_missing_is_missed_by_our_command() -> None:
    assert translate(TOOLS, ["kafka-reassign-partitions", "--list", "--timeout"]) == ["reassign", "list", "--timeout"]
    assert translate(TOOLS, ["kafka-reassign-partitions", "--list", "--timeout", "x"])[-1:] == ["x"]  # type: ignore[index]
    assert translate(TOOLS, ["kafka-leader-election", "--election-type"]) == ["elect"]


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("kafka-topics", "--bootstrap-server h:1 --topic t"),
        ("kafka-topics", "--list --describe"),
        ("kafka-consumer-groups", "--bootstrap-server h:1 --group g"),
        ("kafka-reassign-partitions", "--bootstrap-server h:1"),
        ("kafka-configs", "--alter --describe --entity-type topics"),
        ("zookeeper-shell", "h:1"),
        ("zookeeper-shell", "h:1 create /brokers x"),
        ("kafka-transactions", "--bootstrap-server h:1"),
    ],
)
def test_exactly_one_action_is_wanted(tool: str, given: str) -> None:
    with pytest.raises(UsageError, match=f"{tool} needs one action: .* or "):
        translate(TOOLS, [f"{tool}.sh", *given.split()])
    for helping in ([], ["--help"], ["--bootstrap-server", "h:1", "-h"]):
        assert translate(TOOLS, [tool, *helping]) is not None


def test_through_the_program(tmp_path: Path) -> None:
    folder = tmp_path
    version = klamm("kafka-topics.sh", "--version", folder=folder)
    assert (version.code, version.out.split()[0]) == (0, "klamm")
    ran = klamm("kafka-topics", "--help", folder=folder)
    assert (ran.code, "describe" in ran.out) == (0, True)
    wrong = klamm("kafka-log-dirs", "--describe", "--frobnicate", folder=folder)
    assert (wrong.code, wrong.err.splitlines()[1]) == (2, "hint: klamm brokers log-dirs --help")
    sideways = klamm("kafka-leader-election", "--election-type", "sideways", folder=folder)
    assert (sideways.code, "no such command: sideways" in sideways.err) == (2, True)
    absent = klamm("kafka-toipcs", "--list", folder=folder)
    assert (absent.code, "did you mean kafka-topics" in absent.err) == (2, True)
    unreachable = klamm("kafka-get-offsets", "--broker-list", "127.0.0.1:1", "--topic", "t", folder=folder)
    assert unreachable.code == 3


REFUSED = [
    (tool.name, option) for tool in TOOLS for option, answer in tool.options.items() if isinstance(answer, Refuse)
]


@pytest.mark.parametrize(("tool", "option"), REFUSED)
def test_a_refused_option_says_what_to_use_instead(tool: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    change = next(each for each in TOOLS if each.name == tool).options[option]
    assert isinstance(change, Refuse)
    for line in ([tool, option, "x"], [f"{tool}.sh", f"{option}=x"]):
        ran = in_process(*line, capture=capsys)
        complaint = f"error: {tool} {option} is not supported here: {change.instead}"
        assert (ran.code, ran.err.startswith(complaint)) == (2, True), ran.err


def test_the_page_has_every_option_of_every_tool() -> None:
    page = TOOLS_PAGE.read_text("utf-8")
    assert page == tools_page(), "python -m cli.reference"
    for name, options in json.loads((FIXTURES / "options.json").read_text("utf-8")).items():
        table = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert [option for option in options if f"| `{option}` |" not in table] == []
    refused = page.partition("## Tools without a command here\n")[2]
    assert [name for name in ABSENT_TOOLS if f"\n| `{name}` | " not in refused] == []
    for name, options in ABSENT_OPTIONS.items():
        table = refused.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert [option for option in options if f"\n| `{option}` | " not in table] == []


def test_what_is_told_of_an_absent_tools_option_is_about_an_option_that_it_has() -> None:
    unknown = {name: set(tool.options) - set(ABSENT_OPTIONS.get(name, ())) for name, tool in ABSENT_TOOLS.items()}
    assert {name: options for name, options in unknown.items() if options} == {}


@pytest.mark.parametrize(
    "told", sorted({told for tool in ABSENT_TOOLS.values() for told in (tool.instead, *tool.options.values())})
)
def test_commands_that_are_named_instead_exist_with_their_options(told: str) -> None:
    for phrase in told.split("klamm ")[1:]:
        words = [word.strip(":;,") for word in phrase.split(" | ")[0].split()]
        entry = next((entry for entry in ENTRIES if entry.name == words[0]), None)
        if entry is None:
            assert not words[0].islower() or words[0] in ("has", "speaks", "starts"), told
            continue
        command: Any = load(entry)
        command = getattr(command, "commands", {}).get(words[1] if len(words) > 1 else "", command)
        options = [word for word in words if word.startswith("-")]
        known = {name for param in getattr(command, "params", ()) for name in param.opts}
        assert set(options) <= known, told


def test_shims_are_the_shell_names_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "bin"
    dry = in_process("shims", folder, "--dry-run", "-o", "json", capture=capsys)
    assert (dry.code, folder.exists(), len(dry.json)) == (0, False, 2 * len(TOOLS) + 1), dry.err
    ran = in_process("shims", folder, capture=capsys)
    assert (ran.code, {path.name for path in folder.iterdir()} >= {"kafka-topics", "kafka-topics.sh"}) == (0, True)
    said = subprocess.run([folder / "kafka-topics.sh", "--version"], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout.split()[0]) == (0, "klamm"), said.stderr
    said = subprocess.run([folder / "kafka-topics", "--list", "--topic", "a b"], capture_output=True, text=True,
                          timeout=60, cwd=tmp_path, env=environment(tmp_path))  # fmt: skip
    assert (said.returncode, "no cluster is named" in said.stderr) == (2, True), said.stderr
    (folder / "kafka-configs").write_text("mine")
    again = in_process("shims", folder, capture=capsys)
    assert (again.code, "kafka-configs" in again.err) == (2, True)
    assert (folder / "kafka-configs").read_text() == "mine"
    (folder / "kafka-configs").unlink()
    assert in_process("shims", folder, capture=capsys).code == 0


@pytest.mark.parametrize("name", json.loads((FIXTURES / "options.json").read_text("utf-8")))
def test_every_option_of_the_tool_is_taken(name: str) -> None:
    tool = next(tool for tool in TOOLS if tool.name == name)
    command: Any = load(next(entry for entry in ENTRIES if entry.name == tool.words[0]))
    commands = getattr(command, "commands", {"": command})
    word = tool.words[1] if len(tool.words) > 1 else ""
    chosen = [commands[word]] if word in commands else list(commands.values())
    ours = {name for command in chosen for param in command.params for name in (*param.opts, *param.secondary_opts)}
    theirs = set(json.loads((FIXTURES / "options.json").read_text("utf-8"))[name])
    assert theirs - ours - set(tool.options) - {"--help", "--version"} == set()
