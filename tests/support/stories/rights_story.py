"""Commands with exactly the rights of ``cli.table_of_rights``, and without each of them, on a real authorizer.

Every cell, a command with some rights, has a user of its own, so no rule is taken back. Every case has a topic, a group
and a transactional id of its own.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pytest
from klamm_program import Ran, in_process
from spark_traces import one_source, write_checkpoint
from state_change_logs import start, write_log
from transaction_story import hang

from cli.table_of_rights import Need, Without, needs_of
from engine.admin.acls.access import add_acls
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import Naming, resolve_target
from engine.admin.reassignment.lock_by_group import GROUP
from engine.common.acl import AclOperation, ResourceType
from engine.common.topic_names import SUITE_TOPIC_PREFIX
from engine.kafka.acls import CLUSTER_NAME, AclBinding, AclEntry, PatternType, Permission, ResourcePattern

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OWNER = "User:owner"
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.partition.verification.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "delegation.token.secret.key": "token-Secr3t",
}


@dataclass(frozen=True)
class Case:
    """A command line. ``{t}``, ``{g}``, ``{x}`` and ``{f}`` are its own topic, group, transactional id and folder."""

    words: str = ""
    before: tuple[str, ...] = ()
    """Command lines of an administrator."""
    code: int = 0
    """The exit code of the command that has its rights."""
    stdin: str = ""
    has_topic: bool = True
    hangs: bool = False
    """Its topic has a transaction that no coordinator knows."""
    replicas: str = "0"
    """Those of its topic."""
    brokers: int = 1
    """How many it needs. The third has ended: it was the only one with the topic."""
    runs_spark: bool = False
    group: str | None = None
    topics: str | None = None
    """What the names of topics that it makes itself begin with."""


_COMMIT = "groups reset-offsets --group {g} --topic {t} --to-earliest --execute --yes"
_IN_TRANSACTION = "produce {t} --transactional-id {x}"
_SWAP = "reassign execute --reassignment-json-file {f}/swap.json --yes --wait"
_UNSEEN = "topics create unseen-{t} --replica-assignment 0:1"
_MOVE = "plan move --topic {t} --brokers 1 --out {f}/plan.json"

CASES: Mapping[str, Case] = {
    "topics list": Case("{t}"),
    "topics describe": Case("{t}"),
    "topics create": Case("{t} --partitions 1 --replication-factor 1", has_topic=False),
    "topics alter": Case("{t} --partitions 2 --yes", group=GROUP),
    "topics delete": Case("{t}|absent --yes", group=GROUP),
    "configs describe --topic": Case("--topic {t}"),
    "configs describe --entity-type": Case("--entity-type topics"),
    "configs describe --broker": Case(
        "--broker 0", ("configs alter --broker 0 --add-config log.cleaner.threads=1 --yes",)
    ),
    "configs describe --user": Case("--user {t}", ("quotas set --user {t} --producer-byte-rate 1024",)),
    "configs alter --topic": Case("--topic {t} --add-config retention.ms=1000 --yes"),
    "configs alter --broker": Case("--broker 0 --add-config log.cleaner.threads=2 --yes"),
    "configs alter --user": Case("--user {t} --add-config producer_byte_rate=1024 --yes"),
    "configs alter --client": Case("--client {t} --add-config producer_byte_rate=1024 --yes"),
    "quotas list": Case(),
    "quotas describe": Case("--client {t}", ("quotas set --client {t} --producer-byte-rate 1024",)),
    "quotas describe --user": Case("--user {t}", ("quotas set --user {t} --producer-byte-rate 1024",)),
    "quotas usage": Case("", ("quotas set --client {t} --producer-byte-rate 1024",), code=1),
    "quotas set": Case("--client {t} --producer-byte-rate 1024"),
    "quotas set --user": Case("--user {t} --producer-byte-rate 1024"),
    "quotas remove --user": Case(
        "--user {t} --delete-config producer_byte_rate --yes", ("quotas set --user {t} --producer-byte-rate 1024",)
    ),
    "quotas remove": Case(
        "--client {t} --delete-config producer_byte_rate --yes", ("quotas set --client {t} --producer-byte-rate 1024",)
    ),
    "elect preferred": Case("--topic {t}", (_SWAP,), replicas="0:1", brokers=2),
    "elect unclean": Case("--topic {t} --yes", code=1, has_topic=False, brokers=3),
    "reassign generate": Case("--topics-to-move-json-file {f}/topics.json --broker-list 0"),
    "reassign execute": Case(
        "--reassignment-json-file {f}/swap.json --yes --wait", replicas="0:1", brokers=2, group=GROUP
    ),
    "reassign verify": Case("--reassignment-json-file {f}/same.json"),
    "reassign cancel": Case("--reassignment-json-file {f}/same.json --yes"),
    "reassign list": Case(),
    "plan rebalance": Case(),
    "plan decommission": Case("1", replicas="1", brokers=2),
    "plan replace": Case("0=1", brokers=2),
    "plan expand": Case("1", brokers=2),
    "plan racks": Case(),
    "plan factor": Case("1"),
    "plan move": Case("--brokers 0"),
    "plan leaders": Case(),
    "plan log-dirs": Case(),
    "plan check": Case("{f}/plan.json", (_MOVE,), brokers=2),
    "plan status": Case("{f}/plan.json", (_MOVE,), brokers=2, group=GROUP),
    "plan verify": Case("{f}/plan.json", (_MOVE,), code=1, brokers=2, group=GROUP),
    "plan apply": Case("{f}/plan.json --yes", (_MOVE,), brokers=2, group=GROUP),
    "plan resume": Case("{f}/plan.json --yes", (_MOVE,), brokers=2, group=GROUP),
    "plan rollback": Case("{f}/plan.json --yes", (_MOVE, "plan apply {f}/plan.json --yes"), brokers=2, group=GROUP),
    "groups list": Case("", (_COMMIT,)),
    "groups describe": Case("--group {g}|absent", (_COMMIT,)),
    "groups reset-offsets": Case("--group {g} --topic {t} --to-earliest --execute --yes"),
    "groups delete-offsets": Case("--group {g} --topic {t} --yes", (_COMMIT,)),
    "groups delete": Case("--group {g} --yes", (_COMMIT,)),
    "acls list": Case(),
    "acls add": Case("--allow-principal User:new --operation read --topic {t}"),
    "acls remove": Case(
        "--topic {t} --allow-principal User:new --operation read --yes",
        ("acls add --allow-principal User:new --operation read --topic {t}",),
    ),
    "acls explain": Case("User:somebody read topic:absent", code=1),
    "acls lint": Case(),
    "acls export": Case(),
    "acls diff": Case("{f}/acls.yaml", code=1),
    "acls apply": Case("{f}/acls.yaml --yes"),
    "users list": Case(),
    "users set": Case("{t} --password-file {f}/password"),
    "users remove": Case("{t} --yes", ("users set {t} --password-file {f}/password",)),
    "transactions list": Case("", (_IN_TRANSACTION,)),
    "transactions describe": Case("{x}", (_IN_TRANSACTION,)),
    "transactions producers": Case("{t}-0"),
    "transactions find-hanging": Case(),
    "transactions abort": Case("{t}-0 --start-offset 1 --yes", hangs=True),
    "transactions force-terminate": Case("{x} --yes", (_IN_TRANSACTION,)),
    "lag": Case("--group {g}|absent --samples 1", (_COMMIT,)),
    "top": Case("--screenshot {f}/top.svg", (_COMMIT,)),
    "exporter": Case("--once", (_COMMIT,)),
    "replicas verify": Case(),
    "brokers list": Case(),
    "brokers describe": Case("0"),
    "brokers log-dirs": Case(),
    "brokers metrics": Case(code=1),
    # Its own topic is all that it sees, so no broker is known to be safe.
    "brokers restart-order": Case(brokers=2, code=1),
    # The broker may go on leading what is hidden.
    "brokers demote": Case("0 --yes", (_UNSEEN,), code=1, replicas="0:1", brokers=2, group=GROUP),
    "brokers restore": Case(
        "{f}/swap.json --rollback-file {f}/back.json --yes", replicas="0:1", brokers=2, group=GROUP
    ),
    "offsets": Case("{t}|absent"),
    "records delete": Case("--topic {t} --partition 0 --before-offset 1 --yes"),
    "cluster describe": Case(),
    "cluster health": Case(),
    "cluster load": Case(),
    "cluster load --rates": Case("--rates"),
    "cluster snapshot": Case("{f}/snapshot.json"),
    "produce": Case("{t}", stdin="a\n"),
    "produce --transactional-id": Case("{t} --transactional-id {x}", stdin="a\n"),
    "consume": Case("{t}|absent --until-end"),
    "consume --group": Case("{t}|absent --until-end --group {g}"),
    "perf producer": Case("--topic {t} --num-records 1 --record-size 1000 --throughput -1"),
    "perf consumer": Case("--topic {t} --messages 1 --timeout 10 --group {g}"),
    "perf suite": Case("--experiment pair --seconds 1 --producer-bytes 1000 --yes", topics=SUITE_TOPIC_PREFIX),
    "state-changes check": Case("{f}/state-change.log"),
    "spark commit": Case("{f}/checkpoint --group {g}"),
    "spark jobs": Case("{f}/checkpoint"),
    "spark lag": Case("--out {f}/lag --samples 1", (_COMMIT,), runs_spark=True),
    "spark verify": Case("--topic {t}", runs_spark=True),
    "tokens list": Case(),
    "tokens create --owner-principal": Case(f"--owner-principal {OWNER}"),
}


READING = (
    "topics describe", "configs describe --topic", "configs describe --broker", "groups list", "groups describe", "lag",
    "offsets", "consume --group", "transactions describe", "brokers log-dirs", "cluster describe", "acls list",
)  # fmt: skip
"""Cases that change nothing, for logins beside the one that tries them all."""

CHANGING = (
    "topics create", "topics alter", "topics delete", "configs alter --topic", "configs alter --broker",
    "configs alter --user", "quotas set", "quotas set --user", "quotas remove", "acls add", "acls remove", "acls apply",
    "users set", "users remove", "tokens create --owner-principal", "groups reset-offsets", "groups delete",
    "records delete", "produce --transactional-id",
)  # fmt: skip
"""Cases of one broker that change something, for the same logins."""


@dataclass(frozen=True)
class Cell:
    """A case with all rights that it needs, or without one of them."""

    case: str
    missing: Need | None = None

    @property
    def command(self) -> str:
        return self.case.partition(" --")[0]

    @property
    def own(self) -> str:
        """What is in the names of all that belongs to the case. Who may not see the lock of plans makes the change."""
        if self.missing is not None and CASES[self.case].group == GROUP and self.missing.without is Without.HIDDEN:
            return self.user
        return self._case_name

    @property
    def _case_name(self) -> str:
        return self.case.replace(" --", "-").replace(" ", "-")

    @property
    def user(self) -> str:
        if self.missing is None:
            return f"{self._case_name}-all"
        operation, resource_type = self.missing.right
        return f"{self._case_name}-no-{operation.word}-{resource_type.word}"

    def __str__(self) -> str:
        return self.user

    @property
    def needs(self) -> list[Need]:
        words = CASES[self.case].words.split()
        return [
            need
            for need in needs_of(self.command)
            if need.without is not Without.BESIDE
            and (not need.options or any(option in words for option in need.options))
        ]


@dataclass(frozen=True)
class Stranger(Cell):
    """A case of somebody who has no right at all."""

    @property
    def own(self) -> str:
        return f"strange-{self._case_name}"

    @property
    def user(self) -> str:
        return self.own


_ALL = [Cell(case, missing) for case in CASES for missing in (*Cell(case).needs, None)]
"""All that lack something come before the one that may do it."""
CELLS = [cell for cell in _ALL if not CASES[cell.case].runs_spark]
CELLS_OF_SPARK = [cell for cell in _ALL if CASES[cell.case].runs_spark]


class Named(Protocol):
    """A cell, as far as what it is about is concerned."""

    @property
    def case(self) -> str: ...
    @property
    def own(self) -> str: ...


_LOOKS = {
    ("t", ResourceType.TOPIC): (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ),
    ("g", ResourceType.GROUP): (AclOperation.DESCRIBE,),
    ("x", ResourceType.TRANSACTIONAL_ID): (AclOperation.DESCRIBE,),
}
"""What lists need, by the letter that names of cells begin with and the type of resource."""


class RightsStory:
    """The running cluster, as its super user and as the users of the cells see it."""

    zookeeper = ""

    def __init__(self, folder: Path, admin: str, login: str, cells: Iterable[Cell]) -> None:
        """``admin`` and ``login`` are the addresses of a listener of super users, and of one with OAUTHBEARER."""
        self.folder, self.admin, self.login = folder, admin, login
        self._prepared: set[str] = set()
        rules = [
            AclBinding(
                self._pattern(need, cell),
                AclEntry(self.principal(cell), "*", need.right.operation, Permission.ALLOW),
            )
            for cell in cells
            for need in cell.needs
            if need != cell.missing
        ]
        asyncio.run(self._add(rules))

    async def _add(self, rules: list[AclBinding]) -> None:
        async with Cluster(resolve_target(Naming(None, self.admin), {}, self.folder)) as cluster:
            assert await add_acls(cluster, rules) == []

    def show(self, principal: str, own: str = "") -> None:
        """Let somebody see what belongs to a stranger, or to all cells: commands name one hidden topic at a time."""
        kind = PatternType.LITERAL if own else PatternType.PREFIXED
        rules = [
            AclBinding(
                ResourcePattern(resource_type, own or f"{letter}-", kind),
                AclEntry(principal, "*", operation, Permission.ALLOW),
            )
            for (letter, resource_type), operations in _LOOKS.items()
            for operation in operations
        ]
        asyncio.run(self._add(rules))

    def names(self, cell: Named) -> dict[str, str]:
        t, g, x = [cell.own] * 3 if cell.own.startswith("strange-") else (f"{letter}-{cell.own}" for letter in "tgx")
        return {"t": t, "g": CASES[cell.case].group or g, "x": x, "f": str(self.folder / cell.own)}

    def principal(self, cell: Cell) -> str:
        return f"User:{cell.user}"

    def resource(self, need: Need, cell: Cell) -> str:
        """The resource that a right is on, as ``acls explain`` takes it."""
        pattern = self._pattern(need, cell)
        is_cluster = pattern.resource_type is ResourceType.CLUSTER
        return "cluster" if is_cluster else f"{pattern.resource_type.word}:{pattern.name}"

    def _pattern(self, need: Need, cell: Cell) -> ResourcePattern:
        names, made = self.names(cell), CASES[cell.case].topics
        if made is not None and need.right.resource_type is ResourceType.TOPIC:
            return ResourcePattern(ResourceType.TOPIC, made, PatternType.PREFIXED)
        by_type = {
            ResourceType.TOPIC: names["t"],
            ResourceType.GROUP: names["g"],
            ResourceType.CLUSTER: CLUSTER_NAME,
            ResourceType.TRANSACTIONAL_ID: names["x"],
            ResourceType.USER: OWNER,
            ResourceType.DELEGATION_TOKEN: names["t"],
        }
        return ResourcePattern(need.right.resource_type, by_type[need.right.resource_type])

    def prepare(self, cell: Named, capture: pytest.CaptureFixture[str]) -> None:
        """Make what the case's command wants to find."""
        if cell.own in self._prepared:
            return
        self._prepared.add(cell.own)
        case, names = CASES[cell.case], self.names(cell)
        folder = Path(names["f"])
        folder.mkdir()
        replicas = list(map(int, case.replicas.split(":")))
        for name, wanted in (("same.json", replicas), ("swap.json", replicas[::-1])):
            entry = {"topic": names["t"], "partition": 0, "replicas": wanted}
            (folder / name).write_text(json.dumps({"version": 1, "partitions": [entry]}))
        (folder / "topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": names["t"]}]}))
        (folder / "password").write_text("s3cret")
        rule = {"resource_type": "topic", "name": names["t"], "principal": "User:new", "operation": "read"}
        (folder / "acls.yaml").write_text(json.dumps({"acls": [rule]}))
        change = (
            f"{start(0)} INFO [Controller id=0 epoch=1] Changed partition {names['t']}-0 from NewPartition to "
            "OnlinePartition with state LeaderAndIsr(leader=0, leaderEpoch=0, isrWithBrokerEpoch=List(BrokerState("
            "brokerId=0, brokerEpoch=-1)), leaderRecoveryState=RECOVERED, partitionEpoch=0) (state.change.logger)"
        )
        write_log(folder / "state-change.log", [change])
        write_checkpoint(folder / "checkpoint", [one_source(1, 2, names["t"], 1)])
        if case.has_topic:
            self.as_admin(f"topics create {names['t']} --replica-assignment {case.replicas}", capture)
            self.as_admin(f"produce {names['t']}", capture)
        if case.hangs:
            hang(self.admin, names["t"])
        for line in case.before:
            self.as_admin(line.format(**names), capture)

    def as_admin(self, line: str, capture: pytest.CaptureFixture[str]) -> Ran:
        ran = in_process(*shlex.split(line), "-b", self.admin, capture=capture, stdin="a\n")
        assert ran.code == 0, (line, ran.err)
        return ran

    def run(self, cell: Cell, capture: pytest.CaptureFixture[str], output: str = "json") -> Ran:
        """Run the command as the cell's user."""
        case = CASES[cell.case]
        words = [*cell.command.split(), *case.words.format(**self.names(cell)).split()]
        config = self.config_of(cell)
        return in_process(
            *words, "-b", self.login, "--command-config", config, "-o", output, capture=capture, stdin=case.stdin
        )

    def config_of(self, cell: Cell) -> Path:
        """Return the file with which the cell's user logs in."""
        config = self.folder / f"{cell.user}.properties"
        jaas = f'{MODULE} required unsecuredLoginStringClaim_sub="{cell.user}";'
        config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config={jaas}\n")
        return config


def check(story: RightsStory, cell: Cell, capture: pytest.CaptureFixture[str]) -> None:
    """Run a cell. With all rights the command works; without one it says who lacks what, as the table says."""
    story.prepare(cell, capture)
    ran, case, missing = story.run(cell, capture), CASES[cell.case], cell.missing
    who = story.principal(cell)
    if cell.command == "top":
        assert ran.code == 0, ran.err
        check_picture(story, cell)
        return
    if missing is None or missing.without is Without.LEFT_OUT:
        beside = {need.right.operation.word for need in needs_of(cell.command) if need.without is Without.BESIDE}
        names = story.names(cell)
        own = (f"topic:{names['t']}", f"group:{names['g']}")
        told = [right for right in hidden(ran, own) if right["operation"] not in beside]
        assert (ran.code, told) == (case.code, []), ran.err
        return
    lacks = {"operation": missing.right.operation.word, "resource": story.resource(missing, cell)}
    if case.topics is not None:
        # It names each topic as it makes it.
        number = re.compile(f"({case.topics})[0-9a-f]+-[0-9]+")
        ran = replace(ran, out=number.sub(r"\1", ran.out), err=number.sub(r"\1", ran.err))
        if missing.right.operation is AclOperation.DELETE:
            assert (ran.code, hidden(ran)) == (1, [lacks]), "its work is done by then"
            return
    if missing.without is Without.HIDDEN:
        # A gate that cannot see enough does not open.
        assert ran.code in (case.code, 1) and lacks in hidden(ran), ran.err
        if ran.out.startswith("{") and not {"klamm", "offset"} & ran.json.keys():
            assert lacks in ran.json["hidden"], "an object says it, too; a plan is a file, and a record is itself"
        return
    error = next((json.loads(line)["error"] for line in ran.err.splitlines() if line.startswith('{"error"')), None)
    assert error is not None, ran
    assert (ran.code, error["kind"]) == (4, "authorization"), ran.err
    assert {key: error[key] for key in ("principal", *lacks)} == {"principal": who} | lacks, ran.err
    _, is_there, rule = error["hint"].partition("klamm acls add ")
    assert is_there and f"--allow-principal {shlex.quote(who)} --operation {lacks['operation']} " in rule


def check_login(story: RightsStory, case: str, capture: pytest.CaptureFixture[str], *, types_rules: bool) -> None:
    """Run a case as somebody with its rights, then as somebody without any; klamm says who this is.

    ``types_rules``: as ``check_remedies``.
    """
    check(story, Cell(case), capture)
    stranger = Stranger(case)
    story.prepare(stranger, capture)
    ran = story.run(stranger, capture)
    assert story.principal(stranger) in ran.err, ran.err
    if types_rules:
        check_remedies(story, case, capture)
    else:
        story.show("User:*", stranger.own)


def check_remedies(story: RightsStory, case: str, capture: pytest.CaptureFixture[str]) -> None:
    """Let an administrator type each rule that klamm names to a stranger, until the command works."""
    cell, typed = Stranger(case), set[str]()
    story.prepare(cell, capture)
    story.show(story.principal(cell))
    while True:
        ran = story.run(cell, capture, "plain")
        commands = set(re.findall(r"klamm (acls add .*)", ran.err))
        is_changed = ran.code == CASES[case].code and "--yes" in CASES[case].words
        if is_changed or not commands - typed:
            break
        for rule in commands - typed:
            story.as_admin(rule, capture)
        typed |= commands
    story.show("User:*", cell.own)
    if ran.code != CASES[case].code:
        # Who sees nothing at all is not told what a pattern would match.
        assert (ran.code, typed, f"or it is hidden from {story.principal(cell)}" in ran.err) == (2, set(), True), (
            ran.err
        )


def check_picture(story: RightsStory, cell: Cell) -> None:
    """Check that the dashboard's first screen says what is hidden, and from whom."""
    svg = Path(story.names(cell)["f"], "top.svg").read_text("utf-8")
    # Where a line is folded, no blank stands between its words.
    shown = re.sub(r"\s", "", html.unescape(re.sub(r"<[^>]*>", "", svg)))
    missing = cell.missing
    if missing is None or missing.without is not Without.HIDDEN:
        # The topics of other cases are hidden from everybody.
        assert "describe-configson" not in shown and "onthecluster" not in shown, shown
    elif (missing.right.operation, missing.right.resource_type) == (AclOperation.DESCRIBE, ResourceType.TOPIC):
        assert f"User:{cell.user}lacksdescribeontopic" in shown, shown
    elif missing.right.resource_type is ResourceType.GROUP:
        # Groups of other cases may come before it.
        assert "describeongroup" in shown.partition(f"User:{cell.user}lacks")[2], shown
    else:
        where = story.resource(missing, cell).replace("cluster", "the cluster").replace(":", " ")
        # Topics of other cases may come before it.
        missing_right = f"{missing.right.operation.word} on {where}".replace(" ", "")
        assert missing_right[:30] in shown.partition(f"User:{cell.user}lacks")[2], shown


def hidden(ran: Ran, own: Collection[str] = ()) -> list[dict[str, str]]:
    """Return what the run said to be hidden; of topics and groups only its ``own``: those of other cases are, too."""
    lines = [json.loads(line) for line in ran.err.splitlines() if line.startswith('{"hidden"')]
    rights = [right for line in lines for right in line["hidden"]]
    others = [
        right
        for right in rights
        if right["operation"] in ("describe", "read")
        and right["resource"].startswith(("topic:", "group:"))
        and right["resource"] not in own
    ]
    return [right for right in rights if not own or right not in others]
