"""Each command's rights, on brokers of klamm's with ``AclAuthorizer``, with exactly that, and without each part."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path

import pytest
from broker_program import BrokerProgram, settings
from klamm_program import Ran, in_process
from patience import within
from rights_story import CASES, CELLS, MODULE, SETTINGS, Cell, RightsStory, check, hidden
from transaction_story import hang
from wire_client import create_topic

from cli.commands.exporter import Page
from cli.framework.invocation import Invocation
from cli.table_of_rights import Need
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.rights import Right
from engine.admin.cluster.target import Naming, resolve_target
from engine.admin.lag.measuring import readers_within_pace
from engine.common.model import TopicPartition
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.local.addresses import own_loopback_address
from engine.local.probe import known_broker_ids
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def story(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsStory]:
    folder, host = tmp_path_factory.mktemp("rights"), own_loopback_address()
    connect = f"{zookeeper.connect_string}/{folder.name}"
    with ExitStack() as stack:
        for broker_id in range(3):
            port = 9092 + 10 * broker_id
            config = SETTINGS | {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://{host}:{port},LOGIN://{host}:{port + 1}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.login.oauthbearer.sasl.jaas.config": f"{MODULE} required;",
            }
            own = folder / f"broker-{broker_id}"
            program = BrokerProgram(own, settings(own, host, connect) | config)
            stack.enter_context(program).wait_until_started()
        is_in_time = within(60)
        while 2 not in known_broker_ids(host, 9092):
            assert is_in_time(), "broker 2 is not known"
            time.sleep(0.02)
        create_topic(f"{host}:9092", "t-elect-unclean", assignment={0: [2]})
        assert program.terminate() == 0
        running = RightsStory(folder, f"{host}:9092", f"{host}:9093", CELLS)
        running.zookeeper = connect
        yield running


@pytest.fixture
def beside_unnamed(
    story: RightsStory, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Cell]:
    """Prepares a case beside topic un-named, on which nobody has a right; the test runs in a folder of its own."""
    # Some commands leave a file for the way back.
    monkeypatch.chdir(tmp_path)

    def prepared(case: str) -> Cell:
        cell = Cell(case)
        story.prepare(cell, capsys)
        # The case of a command that deletes topics has deleted its own.
        wanted = {"un-named", *([story.names(cell)["t"]] if CASES[case].has_topic else [])}
        for name in wanted - {*story.as_admin("topics list -o plain", capsys).out.split()}:
            story.as_admin(f"topics create {name} --replica-assignment 0", capsys)
        return cell

    return prepared


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_command_works_with_its_rights_and_says_what_it_lacks(
    cell: Cell, story: RightsStory, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some commands leave a file for the way back.
    monkeypatch.chdir(tmp_path)
    check(story, cell, capsys)


def test_the_rule_that_klamm_names_is_the_one_to_add(story: RightsStory, capsys: Capture) -> None:
    cell = next(cell for cell in CELLS if cell.user == "offsets-no-describe-topic")
    story.prepare(cell, capsys)
    refused = story.run(cell, capsys, "plain")
    assert f"error: User:{cell.user} lacks describe on topic t-offsets (TOPIC_AUTHORIZATION_FAILED)" in refused.err
    words = refused.err.strip().partition("hint: an administrator can allow it: klamm ")[2]
    try:
        story.as_admin(words, capsys)
        assert story.run(cell, capsys).code == 0
    finally:
        story.as_admin(f"acls remove --yes {words.removeprefix('acls add')}", capsys)


def test_rules_that_were_not_removed_are_named(story: RightsStory, capsys: Capture) -> None:
    """Without an operation Kafka means the operation all, so a rule to read stays."""
    who, rule = "--allow-principal User:kept --topic kept", "--operation read --operation write"
    story.as_admin(f"acls add {who} {rule}", capsys)
    story.as_admin("acls add --allow-principal User:other --topic kept --operation read", capsys)
    ran = story.as_admin(f"acls remove {who} --yes -o json", capsys)
    assert ran.json == []
    assert ran.err.splitlines() == [
        "no rule matches: nothing was removed",
        "without --operation, only rules for the operation all match",
        "2 rules cover the resource, and nothing was changed there:",
        "  allow User:kept read on topic kept",
        "  allow User:kept write on topic kept",
    ]
    ran = story.as_admin("acls remove --allow-principal User:nobody --topic kept --operation read --yes", capsys)
    assert ran.err.splitlines() == ["no rule matches: nothing was removed"]
    story.as_admin(f"acls remove {who} {rule} --yes", capsys)


@pytest.mark.parametrize(
    "words",
    [
        "topics delete {t}",
        "topics delete {t}|absent",
        "records delete --topic {t} --partition 0 --before-offset 1",
    ],
)
def test_a_dry_run_names_the_right_that_the_change_would_lack(words: str, story: RightsStory, capsys: Capture) -> None:
    """Who may describe a topic sees it, and may not delete it."""
    cell, topic = Cell("tokens list"), "seen-not-deleted"
    story.prepare(cell, capsys)
    if topic not in story.as_admin("topics list -o plain", capsys).out.split():
        story.as_admin(f"topics create {topic} --replica-assignment 0", capsys)
        story.as_admin(f"produce {topic}", capsys)
    login = ("-b", story.login, "--command-config", story.config_of(cell), "-o", "json")

    def try_it() -> Ran:
        return in_process(*words.format(t=topic).split(), "--dry-run", *login, capture=capsys)

    rule = f"--allow-principal User:{cell.user} --topic {topic}"
    story.as_admin(f"acls add {rule} --operation describe --operation describe-configs", capsys)
    try:
        refused = try_it()
        assert (refused.code, f"User:{cell.user} lacks delete on topic {topic}" in refused.err) == (4, True), (
            refused.err
        )
        assert "would" not in refused.err + refused.out
        story.as_admin(f"acls add {rule} --operation delete", capsys)
        allowed = try_it()
        assert (allowed.code, "dry run: would delete" in allowed.err) == (0, True), allowed.err
    finally:
        operations = " --operation ".join(("", "describe", "describe-configs", "delete"))
        story.as_admin(f"acls remove --yes {rule}{operations}", capsys)


@pytest.mark.parametrize(
    ("words", "lacks"),
    [
        ("delete", ["delete on group {g}"]),
        ("delete-offsets --topic {t}", ["delete on group {g}", "read on topic {t}"]),
        ("reset-offsets --all-topics --to-latest", ["read on group {g}", "read on topic {t}"]),
    ],
)
def test_a_dry_run_names_the_right_on_the_group(
    words: str, lacks: list[str], story: RightsStory, capsys: Capture
) -> None:
    """Who may describe a group and its topics sees the offsets, and may not change them."""
    cell = Cell("tokens list")
    story.prepare(cell, capsys)
    names = {"t": "committed", "g": f"dry-{words.replace(' ', '-').replace('{t}', 't')}"}
    if "committed" not in story.as_admin("topics list -o plain", capsys).out.split():
        story.as_admin("topics create committed --replica-assignment 0", capsys)
    commit = "groups reset-offsets --group {g} --topic {t} --to-earliest --execute --yes"
    story.as_admin(commit.format(**names), capsys)
    login = ("-b", story.login, "--command-config", story.config_of(cell), "-o", "json", "--dry-run")
    asked = ("groups", *words.format(**names).split(), "--group", names["g"], *login)
    rule = f"--allow-principal User:{cell.user}"
    for on in (f"--group {names['g']}", "--topic committed"):
        story.as_admin(f"acls add {rule} --operation describe {on}", capsys)

    def tried(said: str, code: int) -> Ran:
        """Run it until every broker has heard of the rules."""
        is_in_time = within(30)
        while said not in (ran := in_process(*asked, capture=capsys)).err or ran.code != code:
            assert is_in_time(), ran
        return ran

    try:
        for lack in lacks:
            refused = tried(f"User:{cell.user} lacks {lack.format(**names)}", 4)
            assert "would" not in refused.err and "would" not in refused.out
            operation, _, kind, name = lack.format(**names).split()
            story.as_admin(f"acls add {rule} --operation {operation} --{kind} {name}", capsys)
        assert "lacks" not in tried("dry run: would", 0).err
    finally:
        for on in (f"--group {names['g']}", "--topic committed"):
            operations = " --operation ".join(("", "describe", "delete", "read"))
            story.as_admin(f"acls remove --yes {rule} {on}{operations}", capsys)


ALTER_CLUSTER = Need.of("Alter Cluster").right


@pytest.mark.parametrize(
    "cell",
    # By then the transaction to abort may have been aborted, and the controller may have elected the preferred leader.
    [
        cell
        for cell in CELLS
        if cell.missing
        and cell.missing.right == ALTER_CLUSTER
        and not CASES[cell.case].hangs
        and cell.case != "elect preferred"
    ],
    ids=str,
)
def test_a_dry_run_names_the_right_to_alter_the_cluster(
    cell: Cell, story: RightsStory, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    story.prepare(cell, capsys)
    login = ("-b", story.login, "-o", "json", "--dry-run", "--command-config")
    words = [*cell.command.split(), *CASES[cell.case].words.format(**story.names(cell)).split()]
    refused = in_process(*words, *login, story.config_of(cell), capture=capsys)
    assert (refused.code, f"User:{cell.user} lacks alter on the cluster" in refused.err) == (4, True), refused.err
    may = in_process(*words, *login, story.config_of(Cell(cell.case)), capture=capsys)
    assert may.code != 4 and "lacks" not in may.err, may.err


def test_a_dry_run_that_finds_nothing_to_change_lacks_nothing(
    story: RightsStory, capsys: Capture, tmp_path: Path
) -> None:
    """Nor does the command itself, which sends nothing: who may read can check for drift."""
    cell, topic = Cell("tokens list"), "led-as-preferred"
    story.prepare(cell, capsys)
    story.as_admin(f"topics create {topic} --replica-assignment 0", capsys)
    who = f"--allow-principal User:{cell.user}"
    story.as_admin(f"acls add {who} --operation describe --topic {topic}", capsys)
    story.as_admin(f"acls add {who} --operation describe --cluster-resource", capsys)
    login = ("-b", story.login, "--command-config", story.config_of(cell), "--yes", "-o", "json")
    rule = {"resource_type": "topic", "name": topic, "principal": f"User:{cell.user}", "operation": "describe"}
    same, other = tmp_path / "same.yaml", tmp_path / "other.yaml"
    same.write_text(json.dumps({"acls": [rule]}))
    other.write_text(json.dumps({"acls": [rule | {"operation": "read"}]}))
    try:
        for words in (("elect", "preferred", "--topic", topic), ("acls", "apply", same)):
            for more in ((), ("--dry-run",)):
                ran = in_process(*words, *login, *more, capture=capsys)
                assert (ran.code, "lacks" in ran.err) == (0, False), (words, more, ran.err)
        drifted = in_process("acls", "apply", other, *login, "--dry-run", capture=capsys)
        assert (drifted.code, "lacks alter on the cluster" in drifted.err) == (4, True), drifted.err
    finally:
        story.as_admin(f"acls remove --yes {who} --operation describe --cluster-resource", capsys)


def test_who_may_only_read_lacks_write_on_the_topic(story: RightsStory, capsys: Capture) -> None:
    """Such a user gets no producer id: for that a broker wants IdempotentWrite, or Write on some topic (KIP-679)."""
    reader = Cell("consume")
    story.prepare(reader, capsys)
    assert story.run(reader, capsys).code == 0
    config = ("-b", story.login, "--command-config", story.folder / f"{reader.user}.properties", "-o", "json")
    refused = in_process("produce", story.names(reader)["t"], *config, capture=capsys, stdin="a\n")
    error = refused.error
    assert (refused.code, error["operation"], error["resource"]) == (4, "write", f"topic:{story.names(reader)['t']}")


def test_a_person_is_told_what_is_hidden(story: RightsStory, capsys: Capture) -> None:
    cell = next(cell for cell in CELLS if cell.user == "topics-describe-no-describe-cluster")
    story.prepare(cell, capsys)
    ran = story.run(cell, capsys, "plain")
    assert f"warning: hidden: moves under way; User:{cell.user} lacks describe on the cluster" in ran.err
    assert f"klamm acls add --allow-principal User:{cell.user} --operation describe --cluster-resource" in ran.err


def test_an_exporter_says_what_is_hidden_while_it_goes_on_and_once(
    story: RightsStory, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = next(cell for cell in CELLS if cell.user == "exporter-no-describe-cluster")
    story.prepare(cell, capsys)
    told: list[str] = []
    expected = {
        f"hidden: moves, sizes; User:{cell.user} lacks describe on the cluster",
        f"hidden: how long records have waited; User:{cell.user} lacks read on topic {story.names(cell)['t']}",
    }

    async def read_on(
        invocation: Invocation, option: str, address: object, often: str, pages: AsyncGenerator[Page, None]
    ) -> None:
        monkeypatch.setattr(invocation.talk, "warn", told.append)
        pages_left = 3
        async with aclosing(pages):
            async for _ in pages:
                pages_left -= expected <= {*told}
                if not pages_left:
                    return

    monkeypatch.setattr("cli.commands.exporter.serve", read_on)
    login = ("-b", story.login, "--command-config", story.config_of(cell))
    ran = in_process("exporter", "--interval", "500ms", "--listen", "127.0.0.1:1", *login, capture=capsys)
    assert (ran.code, sorted(told)) == (0, sorted(expected)), ran.err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("elect preferred", "--all-topic-partitions"),
        ("elect preferred", "--all-topic-partitions --dry-run"),
        ("elect unclean", "--all-topic-partitions --yes"),
        ("topics describe", "--under-replicated-partitions"),
        ("topics describe", "un-na.*|t-.*"),
        ("topics list", ""),
        ("topics list", "un-na.*"),
        ("topics list", "-o plain"),
        ("topics delete", "un-na.*|{t} --dry-run"),
        ("topics delete", "un-na.* --if-exists --yes"),
        ("cluster describe", ""),
        ("offsets", ""),
        ("offsets", "un-na.*|t-.*"),
        ("consume", "un-na.*|t-.* --until-end --max-messages 1"),
        ("cluster snapshot", "{f}/whole.json"),
        ("cluster snapshot", "--sizes {f}/whole.json"),
        ("cluster load", ""),
        ("brokers describe", "0"),
        ("replicas verify", ""),
        ("transactions find-hanging", ""),
        ("transactions find-hanging", "--broker-id 0"),
        # ZooKeeper tells of all topics, and only brokers of their offsets.
        ("offsets", "--zookeeper {z}"),
        ("replicas verify", "--zookeeper {z}"),
        ("transactions find-hanging", "--zookeeper {z}"),
    ],
)
def test_who_asks_for_all_topics_is_told_which_are_hidden(
    command: str, words: str, story: RightsStory, capsys: Capture, beside_unnamed: Callable[[str], Cell]
) -> None:
    cell = beside_unnamed(command)
    asked = [*command.split(), *words.format(**story.names(cell), z=story.zookeeper).split()]
    login = ("-b", story.login, "--command-config", story.config_of(cell), *(() if "-o" in asked else ("-o", "json")))
    ran = in_process(*asked, *login, capture=capsys)
    assert ran.code in (0, 1), ran.err
    reads = command in ("consume", "replicas verify", "transactions find-hanging")
    operation = "delete" if command == "topics delete" else "read" if reads else "describe"
    if "-o" in asked:
        assert f"hidden: User:{cell.user} lacks {operation} on topic " in ran.err
    else:
        assert {"operation": operation, "resource": "topic:un-named"} in hidden(ran), ran.err
    if command == "cluster load":
        assert re.search(rf"on each: .* led\b.*, as far as User:{cell.user} may see$", ran.err, re.MULTILINE), ran.err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("topics describe", "un-na.*"),
        ("topics delete", "un-na.* --yes"),
        ("topics delete", "un-named --dry-run"),
        ("offsets", "un-na.*"),
        ("offsets", "un-na.* --partitions 0,1"),
        ("offsets", "--topic-partitions un-na.*:0-"),
        ("consume", "un-na.* --until-end"),
        ("replicas verify", "--topic un-na.*"),
        ("plan rebalance", "--topic un-na.*"),
        ("plan move", "--topic un-named --brokers 0"),
        ("lag", "--all-groups --topic un-named --samples 1"),
    ],
)
def test_a_pattern_or_name_of_hidden_topics_alone_is_refused(
    command: str, words: str, story: RightsStory, capsys: Capture, beside_unnamed: Callable[[str], Cell]
) -> None:
    """The right that klamm names is on a topic, never on a pattern, and the topic is not called absent."""
    cell = beside_unnamed(command)
    login = ("-b", story.login, "--command-config", story.config_of(cell), "-o", "json")
    ran = in_process(*command.split(), *words.split(), *login, capture=capsys)
    assert (ran.code, "topic:un-named" in ran.err) == (4, True), ran.err
    assert "does not exist" not in ran.err and "matches" not in ran.err and "topic un-na.*" not in ran.err


@pytest.mark.parametrize(
    ("command", "words"),
    [("topics describe", "un-na.*"), ("topics delete", "un-na.* --yes"), ("offsets", "un-na.*")],
)
def test_who_may_not_look_for_hidden_topics_is_told_that_there_may_be_some(
    command: str, words: str, story: RightsStory, capsys: Capture, beside_unnamed: Callable[[str], Cell]
) -> None:
    cell = beside_unnamed("tokens list")
    login = ("-b", story.login, "--command-config", story.config_of(cell), "-o", "json")
    ran = in_process(*command.split(), *words.split(), *login, capture=capsys)
    assert (ran.code, "acls add" in ran.err) == (2, False), ran.err
    assert "or it is hidden from User:tokens-list-all" in ran.error["message"]


def test_a_name_that_no_topic_can_have_needs_no_right(story: RightsStory, capsys: Capture) -> None:
    cell = Cell("tokens list")
    story.prepare(cell, capsys)
    login = ("-b", story.login, "--command-config", story.config_of(cell), "-o", "json")
    ran = in_process("topics", "alter", "un-na.*", "--partitions", "3", "--yes", *login, capture=capsys)
    assert (ran.code, ran.error["message"], "acls add" in ran.err) == (2, "topic 'un-na.*' does not exist", False)


@pytest.mark.parametrize("user", ["topics-describe-no-describe-cluster", "tokens-list-all"])
@pytest.mark.parametrize("words", ["cluster snapshot whole.json", "plan rebalance"])
def test_the_right_that_ends_a_command_is_named_and_not_one_that_only_hides(
    user: str, words: str, story: RightsStory, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without DescribeConfigs a snapshot only lacks settings. The second user sees no topic at all."""
    monkeypatch.chdir(tmp_path)
    cell = next(cell for cell in CELLS if cell.user == user)
    story.prepare(cell, capsys)
    login = ("-b", story.login, "--command-config", story.config_of(cell), "-o", "json")
    error = in_process(*words.split(), *login, capture=capsys).error
    assert (error["operation"], error["resource"]) == ("describe", "cluster"), error


def test_a_hidden_group_that_nobody_named_ends_no_reading_command(story: RightsStory, capsys: Capture) -> None:
    """Who may describe the cluster sees the names of all groups."""
    owner = Cell("groups describe")
    story.prepare(owner, capsys)
    cell = Cell("reassign list")
    story.prepare(cell, capsys)
    login = ("-b", story.login, "--command-config", story.config_of(cell), "-o", "json")
    lacks = {"operation": "describe", "resource": f"group:{story.names(owner)['g']}"}
    for words in ("groups describe --all-groups", "lag --samples 1"):
        ran = in_process(*words.split(), *login, capture=capsys)
        assert (ran.code, lacks in hidden(ran)) == (0, True), ran.err
        assert any(row["group"] == story.names(owner)["g"] for row in ran.json), "it has a row all the same"
    named = in_process("groups", "describe", "--group", story.names(owner)["g"], *login, capture=capsys)
    assert (named.code, named.error["resource"]) == (4, lacks["resource"])


@pytest.mark.parametrize(
    ("words", "nothing"),
    [
        ("topics list un.*such", "no topics"),
        ("groups list --state Dead", "no groups"),
        ("groups describe un.*such", "no consumer group matches 'un.*such'"),
        ("lag un.*such", "no consumer group matches 'un.*such'"),
    ],
)
def test_who_is_shown_everything_is_not_told_that_others_may_see_more(
    words: str, nothing: str, story: RightsStory, capsys: Capture
) -> None:
    """Brokers show the names of all topics and groups to who may describe the cluster."""
    may_describe_cluster, stranger = Cell("reassign list"), Cell("tokens list")
    for cell in (may_describe_cluster, stranger):
        login = ("-b", story.login, "--command-config", story.config_of(cell), "-o", "plain")
        ran = in_process(*words.split(), *login, capture=capsys)
        said = [line.removeprefix("error: ") for line in ran.err.splitlines()]
        unseen = {f"{nothing} that User:{cell.user} may see", f"{nothing}, or it is hidden from User:{cell.user}"}
        assert (nothing in said, bool(unseen & set(said))) == (cell is not stranger, cell is stranger), said


def test_who_may_not_describe_the_cluster_is_told_that_groups_may_be_hidden(
    story: RightsStory, capsys: Capture
) -> None:
    cell = Cell("tokens list")
    login = ("-b", story.login, "--command-config", story.config_of(cell))
    lacks = {"operation": "describe", "resource": "cluster"}
    for words in ("groups list", "groups describe --all-groups", "lag --samples 1", "lag un.*such"):
        ran = in_process(*words.split(), *login, "-o", "json", capture=capsys)
        assert lacks in hidden(ran), ran.err
    ran = in_process("kafka-consumer-groups", "--list", *login[2:], "--bootstrap-server", story.login, capture=capsys)
    assert (ran.code, ran.err) == (0, ""), "Kafka's tool says nothing of it"


def test_a_transaction_is_seen_although_the_topic_of_coordinators_is_hidden(
    story: RightsStory, capsys: Capture
) -> None:
    cell = Cell("tokens list")
    story.as_admin("topics create held --replica-assignment 0", capsys)
    hang(story.admin, "held")
    rule = f"--allow-principal User:{cell.user} --operation read --topic held"
    story.as_admin(f"acls add {rule}", capsys)
    try:
        login = ("-b", story.login, "--command-config", story.config_of(cell), "-o", "json")
        found = in_process("cluster", "health", *login, capture=capsys).json["reasons"]
        assert [(reason["check"], reason["count"]) for reason in found] == [("hanging_transactions", 1)]
    finally:
        story.as_admin(f"acls remove {rule} --yes", capsys)
        story.as_admin("topics delete held --yes", capsys)


@pytest.mark.parametrize("command", ["lag --samples 1", "exporter --once"])
def test_who_may_not_read_a_topic_is_told_that_it_does_not_see_how_long_records_wait(
    command: str, story: RightsStory, capsys: Capture
) -> None:
    cell = Cell("lag")
    story.prepare(cell, capsys)
    login = ("-b", story.login, "--command-config", story.config_of(cell), "-o", "json")
    lacks = {"operation": "read", "resource": f"topic:{story.names(cell)['t']}"}
    assert lacks in hidden(in_process(*command.split(), *login, capture=capsys))
    if command.startswith("lag"):
        assert lacks not in hidden(in_process(*command.split(), "--no-time-lag", *login, capture=capsys))


def test_nobody_needs_the_right_to_read_the_topic_of_groups(story: RightsStory, capsys: Capture) -> None:
    """What lag reads there, if it may, makes a verdict surer."""
    cell = Cell("lag")
    story.prepare(cell, capsys)
    names, rule = (
        story.names(cell),
        f"--allow-principal User:{cell.user} --operation describe --topic {GROUP_METADATA_TOPIC}",
    )
    story.as_admin(f"acls add {rule}", capsys)

    async def denied() -> list[Right]:
        naming = Naming(None, story.login, command_config=str(story.config_of(cell)))
        async with Cluster(resolve_target(naming, {}, story.folder)) as cluster:
            reader = (names["g"], TopicPartition(names["t"], 0))
            await readers_within_pace(await cluster.wire(), {reader: 0}, int(time.time() * 1000), patience_s=5)
            return cluster.denied

    try:
        assert asyncio.run(denied()) == []
    finally:
        story.as_admin(f"acls remove {rule} --yes", capsys)


def test_one_rule_can_show_all_that_is_hidden(story: RightsStory, capsys: Capture) -> None:
    for case in ("topics describe", "offsets"):
        story.prepare(Cell(case), capsys)
    login = ("-b", story.login, "--command-config", story.config_of(Cell("reassign list")))
    said = in_process("topics", "list", *login, "-o", "plain", capture=capsys).err
    assert re.search(r"lacks describe on topic \S+ and \d+ more\n.*--topic \S+\n", said), said
    assert said.endswith("for all of them: the same with --topic '*'\n")
    for case in ("topics describe", "offsets"):
        name = story.names(Cell(case))["t"]
        said = in_process("topics", "list", name, *login, "-o", "plain", capture=capsys).err
        assert f"lacks describe on topic {name}" in said and "for all" not in said, said


def test_offsets_of_a_hidden_topic_are_not_called_those_of_none(story: RightsStory, capsys: Capture) -> None:
    owner, stranger = Cell("topics describe"), Cell("tokens list")
    story.prepare(owner, capsys)
    topic = story.names(owner)["t"]
    login = ("--bootstrap-server", story.login, "--command-config", story.config_of(stranger))
    deletion = ("--delete-offsets", "--group", "absent", "--topic", topic)
    ran = in_process("kafka-consumer-groups", *deletion, *login, capture=capsys)
    assert (ran.code, "does not exist" in ran.err, f"lacks read on topic {topic}" in ran.err) == (4, False, True), (
        ran.err
    )


def test_a_hidden_topic_is_not_called_gone(story: RightsStory, capsys: Capture) -> None:
    cell = next(cell for cell in CELLS if cell.user == "state-changes-check-no-describe-topic")
    story.prepare(cell, capsys)
    ran = story.run(cell, capsys)
    assert hidden(ran) == ran.json["hidden"] != []
    assert "gone" not in ran.out, ran.out


@pytest.mark.parametrize(
    ("command", "words"), [("topics list", "t-.*"), ("topics describe", "t-.*"), ("topics list", "--exclude-internal")]
)
def test_what_was_not_asked_for_is_not_called_hidden(
    command: str, words: str, story: RightsStory, capsys: Capture, beside_unnamed: Callable[[str], Cell]
) -> None:
    cell = beside_unnamed(command)
    login = ("-b", story.login, "--command-config", story.config_of(cell))
    ran = in_process(*command.split(), *words.split(), *login, "-o", "json", capture=capsys)
    resources = {line["resource"] for line in hidden(ran)}
    assert resources and "topic:__consumer_offsets" not in resources, ran.err
    assert ("topic:un-named" in resources) == (words == "--exclude-internal"), ran.err


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("elect preferred", "kafka-leader-election --election-type preferred --all-topic-partitions --admin.config"),
        ("elect preferred", "kafka-preferred-replica-election --admin.config"),
        ("topics list", "kafka-topics --list --command-config"),
        ("topics describe", "kafka-topics --describe --command-config"),
        ("brokers describe", "kafka-broker-api-versions --command-config"),
    ],
)
def test_a_tool_of_kafkas_says_nothing_of_hidden_topics(
    case: str, words: str, story: RightsStory, capsys: Capture, beside_unnamed: Callable[[str], Cell]
) -> None:
    cell = beside_unnamed(case)
    login = (story.config_of(cell), "--bootstrap-server", story.login)
    ran = in_process(*words.split(), *login, capture=capsys)
    assert (ran.code in (0, 1), "hidden" in ran.err, "un-named" in ran.err + ran.out) == (True, False, False), ran.err


def test_a_broker_that_may_lead_hidden_topics_is_not_called_demoted(
    story: RightsStory, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cell = next(cell for cell in CELLS if cell.user == "brokers-demote-all")
    story.prepare(cell, capsys)
    ran, unseen = story.run(cell, capsys, "plain"), f"unseen-{story.names(cell)['t']}"
    (warning,) = [line for line in ran.err.splitlines() if line.startswith("warning: broker 0 may lead partitions of ")]
    assert (ran.code, "hidden from User:brokers-demote-all" in warning) == (1, True), ran.err
    assert "already the case" not in ran.err
    (led,) = story.as_admin(f"topics describe {unseen} -o json", capsys).json
    assert [partition["leader"] for partition in led["partitions"]] == [0]


def test_a_demotion_that_is_refused_leaves_no_rollback(
    story: RightsStory, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may describe the cluster, and not alter it, is refused only by the change itself."""
    monkeypatch.chdir(tmp_path)
    cell = next(cell for cell in CELLS if cell.user == "brokers-demote-no-alter-cluster")
    story.prepare(cell, capsys)
    story.as_admin("topics create not-demoted --replica-assignment 0:1", capsys)
    for on in ("--topic not-demoted", "--cluster-resource"):
        story.as_admin(f"acls add --allow-principal User:{cell.user} --operation describe {on}", capsys)
    try:
        ran = story.run(cell, capsys, "plain")
        assert (ran.code, f"User:{cell.user} lacks alter on the cluster" in ran.err) == (4, True), ran.err
        (saved,) = re.findall(r"the rollback is in (\S+);", ran.err)
        assert f"nothing was changed, and {saved} is removed again" in ran.err
        assert [*tmp_path.iterdir()] == []
    finally:
        rule = f"--allow-principal User:{cell.user} --operation describe"
        story.as_admin(f"acls remove --yes {rule} --cluster-resource", capsys)
