"""Kerberos with a real KDC: klamm logs in to Apache Kafka and to ZooKeeper with a keytab and with tickets.

A broker of klamm and one of Kafka reach each other with a keytab, and take the same principals for the same users.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_kafka import ApacheKafkaBroker, run_tool
from broker_program import BrokerProgram
from kerberos import REALM, Kdc, kdc, keytab_module, ticket_module
from klamm_program import Ran, in_process, properties_file
from patience import wait_for, within
from rights_story import CHANGING, READING, Cell, RightsStory, check_login
from spark_sessions import SETTINGS
from standalone_spark import submitted

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NotAdmitted
from engine.kafka.zk.security import ZkSecurity, zk_security
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

PORT, OWN_PORT = 21321, 21323
"""Of Kafka's broker, and of klamm's."""
RULES = f"RULE:[2:$1](kafka),RULE:[1:$1@$0](.*-admin@{REALM})s/(.*)-admin@.*/the-$1/U,RULE:[1:$1]"
OF_BOTH = (*CHANGING, "elect preferred", "reassign execute", "plan apply", "plan rollback")
TOPIC_TOOL = "org.apache.kafka.tools.TopicCommand"


class Realm:
    """A KDC, ZooKeeper and a broker of its realm, and the principals alice (by keytab) and anna (by ticket)."""

    def __init__(self, kerberos: Kdc, folder: Path, zookeeper: str) -> None:
        self.kdc, self.folder, self.zookeeper = kerberos, folder, zookeeper
        self.alice = kerberos.keytab("alice")
        self.anna = kerberos.ticket("anna", kerberos.keytab("anna"))

    def client(self, module: str, **more: str) -> Path:
        said = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": module,
            **more,
        }
        return properties_file(self.folder, said)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder, host = tmp_path_factory.mktemp("realm"), own_loopback_address()
    with kdc(folder, host) as kerberos, pytest.MonkeyPatch.context() as patch:
        for name, value in kerberos.environment.items():
            patch.setenv(name, value)
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kerberos.krb5_conf}")
        server = folder / "zookeeper.jaas"
        module = keytab_module(kerberos.keytab(f"zookeeper/{host}"), f"zookeeper/{host}@{REALM}")
        server.write_text(f"Server {{ {module} }};\n")
        with EmbeddedZooKeeper(
            host=host,
            fsync=False,
            settings={"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
            java_options=[f"-Djava.security.auth.login.config={server}"],
        ) as zookeeper:
            broker = keytab_module(kerberos.keytab(f"kafka/{host}"), f"kafka/{host}@{REALM}")
            with ApacheKafkaBroker(
                folder,
                broker_id=0,
                host=host,
                port=PORT,
                zookeeper_connect=zookeeper.connect_string,
                overrides=settings(host, PORT, broker),
                heap="300m",
            ):
                own = {"broker.id": "1", "log.dirs": str(folder / "own"), "zookeeper.connect": zookeeper.connect_string}
                with BrokerProgram(folder / "klamm", settings(host, OWN_PORT, broker) | own) as program:
                    program.wait_until_started()
                    yield Realm(kerberos, folder, zookeeper.connect_string)


def settings(host: str, port: int, module: str) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://{host}:{port},KERBEROS://{host}:{port + 1}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KERBEROS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "KERBEROS",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        "listener.name.kerberos.gssapi.sasl.jaas.config": module,
        "delegation.token.secret.key": "token-Secr3t",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:alice;User:kafka;User:THE-CHIEF;User:ANONYMOUS",
    }


def run(realm: Realm, config: Path, *words: str, capture: pytest.CaptureFixture[str], port: int = PORT) -> Ran:
    address = f"{realm.kdc.host}:{port + 1}"
    return in_process(*words, "-b", address, "--command-config", config, "-o", "json", capture=capture)


@pytest.mark.parametrize("port", [PORT, OWN_PORT])
def test_a_keytab_and_a_ticket_log_in(realm: Realm, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    by_keytab = realm.client(keytab_module(realm.alice, f"alice@{REALM}"))
    words = ("topics", "create", f"orders-{port}", "--partitions", "1")
    made = run(realm, by_keytab, *words, capture=capsys, port=port)
    assert made.code == 0, made.err
    by_ticket = realm.client(ticket_module(realm.anna))
    seen = run(realm, by_ticket, "topics", "list", capture=capsys, port=port)
    own = f"orders-{port}"
    assert (seen.code, own in seen.out) == (0, False), "anna may not see the topic"
    described = ("topics", "describe", own)
    refused = run(realm, by_ticket, *described, capture=capsys, port=port)
    assert (refused.code, refused.error["principal"]) == (4, "User:anna"), refused.err
    rule = shlex.split(refused.error["hint"].partition("klamm ")[2])
    assert run(realm, by_keytab, *rule, capture=capsys, port=port).code == 0
    is_in_time = within(30)
    while (seen := run(realm, by_ticket, *described, capture=capsys, port=port)).code:
        assert is_in_time(), seen.err


class TicketStory(RightsStory):
    """The users of the cells have keytabs."""

    realm: Realm

    def config_of(self, cell: Cell) -> Path:
        keytab = self.realm.kdc.folder / f"{cell.user}.keytab"
        if not keytab.exists():
            self.realm.kdc.keytab(cell.user)
        return self.realm.client(keytab_module(keytab, f"{cell.user}@{REALM}"))


@pytest.fixture(scope="module")
def story(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> RightsStory:
    folder, host = tmp_path_factory.mktemp("rights"), realm.kdc.host
    ticket_story = TicketStory(folder, f"{host}:{PORT}", f"{host}:{PORT + 1}", map(Cell, (*READING, *OF_BOTH)))
    ticket_story.realm = realm
    return ticket_story


@pytest.mark.parametrize("case", [*READING, *OF_BOTH])
def test_commands_work_for_a_principal_with_its_rights(
    case: str, story: RightsStory, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # For the others, who logs in by a certificate types rules.
    check_login(story, case, capsys, types_rules=case in OF_BOTH)


def test_brokers_of_both_engines_replicate_from_each_other(realm: Realm, capsys: pytest.CaptureFixture[str]) -> None:
    config = realm.client(keytab_module(realm.alice, f"alice@{REALM}"))
    java = ("--bootstrap-server", f"{realm.kdc.host}:{OWN_PORT + 1}", "--command-config", str(config))
    made = run_tool(TOPIC_TOOL, *java, "--create", "--topic", "both", "--replica-assignment", "0:1,1:0")
    assert made.returncode == 0, made.stdout + made.stderr
    sent = in_process("produce", "both", "-b", f"{realm.kdc.host}:{OWN_PORT + 1}", "--command-config", config,
                      capture=capsys, stdin="a\nb\nc\n")  # fmt: skip
    assert sent.code == 0, sent.err
    asked = ("topics", "describe", "both", "--under-replicated-partitions")
    wait_for(lambda: run(realm, config, *asked, capture=capsys, port=OWN_PORT).out == "[]\n", "each has a copy")
    read = run(realm, config, "consume", "both", "--until-end", capture=capsys, port=OWN_PORT)
    assert (read.code, read.out.count('"value"')) == (0, 3), read.out + read.err


@pytest.mark.parametrize("port", [PORT, OWN_PORT])
def test_rules_make_users_of_principals(realm: Realm, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Who is THE-CHIEF may do everything; no rule is about web of a host."""
    name = f"chief-admin@{REALM}"
    keytab = realm.folder / "chief-admin.keytab"
    chief = realm.client(keytab_module(keytab if keytab.exists() else realm.kdc.keytab("chief-admin"), name))
    made = run(realm, chief, "topics", "create", f"chiefs-{port}", "--partitions", "1", capture=capsys, port=port)
    assert made.code == 0, made.err
    keytab = realm.folder / "web-host.keytab"
    web = keytab if keytab.exists() else realm.kdc.keytab("web/host")
    refused = run(realm, realm.client(keytab_module(web, f"web/host@{REALM}")), "topics", "list",
                  capture=capsys, port=port)  # fmt: skip
    # Kafka fails at it, and just closes the connection.
    assert (refused.code, refused.error["kind"]) == (3, "unreachable" if port == PORT else "authentication"), (
        refused.err
    )


FAILURES = {
    "no such keytab": ("there is no keytab", lambda r: keytab_module(r.folder / "none.keytab", f"alice@{REALM}")),
    "a keytab without the principal": ("has no key of anna@", lambda r: keytab_module(r.alice, f"anna@{REALM}")),
    "no ticket": ("kinit", lambda r: ticket_module(r.folder / "none.cache")),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_a_failure_says(name: str, realm: Realm, capsys: pytest.CaptureFixture[str]) -> None:
    said, module = FAILURES[name]
    ran = run(realm, realm.client(module(realm)), "topics", "list", capture=capsys)
    message = f"{ran.error['message']} | {ran.error['hint']}"
    print(name, "→", message)
    assert (ran.code, ran.error["kind"]) == (3, "authentication"), message
    assert said in message, message


def test_a_service_that_the_kdc_does_not_know(realm: Realm, capsys: pytest.CaptureFixture[str]) -> None:
    config = realm.client(
        keytab_module(realm.alice, f"alice@{REALM}"), **{"sasl.kerberos.service.name": "kafka-of-another"}
    )
    ran = run(realm, config, "topics", "list", capture=capsys)
    assert (ran.code, ran.error["kind"]) == (3, "authentication")
    assert f"the KDC has no principal kafka-of-another/{realm.kdc.host}" in ran.error["message"], ran.err


STRICT = {"clockskew": "-1"}
"""Of krb5.conf: whoever reads this finds every clock wrong, however little it differs from its own."""


def test_a_clock_that_is_not_the_kdcs(
    realm: Realm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = 21389
    # One that knows no service yet: for that it has to ask.
    ticket = realm.kdc.ticket("late", realm.kdc.keytab("late"))
    strict = realm.kdc.write(port, "strict.conf", **STRICT)
    asking = realm.kdc.write(port, "asking.conf")
    with realm.kdc.serving(port, KRB5_CONFIG=str(strict)):
        monkeypatch.setenv("KRB5_CONFIG", str(asking))
        began = time.monotonic()
        ran = run(realm, realm.client(ticket_module(ticket)), "topics", "list", capture=capsys)
    assert (ran.code, ran.error["kind"]) == (3, "authentication"), ran.err
    assert "set this machine's clock by that of the KDC" in ran.error["message"], ran.err
    assert time.monotonic() - began < 20, "it tries no more, as no clock gets right by that"


def test_a_clock_that_is_not_the_brokers(
    realm: Realm, zk_chroot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = realm.kdc.host, 21391
    module = keytab_module(realm.folder / f"kafka-{host}.keytab", f"kafka/{host}@{REALM}")
    own = {"log.dirs": str(tmp_path / "data"), "zookeeper.connect": zk_chroot}
    own["inter.broker.listener.name"] = "PLAINTEXT"
    with monkeypatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(realm.kdc.write(name="strict.conf", **STRICT)))
        program = BrokerProgram(tmp_path, settings(host, port, module) | own)
    with program:
        program.wait_until_started()
        ran = run(realm, realm.client(ticket_module(realm.anna)), "topics", "list", capture=capsys, port=port)
        assert (ran.code, ran.error["kind"]) == (3, "authentication"), ran.err
        assert "are the clocks alike?" in ran.error["hint"], ran.err
        program.wait_until_it_says("Clock skew too great")


def test_zookeeper_by_kerberos(realm: Realm) -> None:
    async def owner(security: ZkSecurity) -> tuple[str, str]:
        async with await ZkClient.connect(realm.zookeeper, security=security) as client:
            await client.create("/by-kerberos")
            client.break_connection()
            acl, _ = await client.get_acl("/by-kerberos")
            await client.delete("/by-kerberos")
            return acl[0].scheme, acl[0].identity

    def security(module: str) -> ZkSecurity:
        return zk_security({"klamm.zookeeper.sasl.jaas.config": module}, {})

    for who, module in (
        ("alice", keytab_module(realm.alice, f"alice@{REALM}")),
        ("anna", ticket_module(realm.anna)),
    ):
        assert asyncio.run(owner(security(module))) == ("sasl", f"{who}@{REALM}")
    with pytest.raises(NotAdmitted, match="kinit"):
        asyncio.run(owner(security(ticket_module(realm.folder / "none.cache"))))


JOB = """\
import json
import sys

from klamm.spark import register
from pyspark.sql import SparkSession

given = json.loads(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
register(spark)
rows = spark.range(20).repartition(2).selectExpr("cast(id as string) as value")
rows.write.format("klamm-kafka").options(**given).option("topic", "by-keytab").mode("append").save()
read = spark.read.format("klamm-kafka").options(**given, subscribe="by-keytab").load()
print(json.dumps(sorted(int(row.value) for row in read.selectExpr("cast(value as string) as value").collect())))
"""


def test_a_keytab_comes_to_executors_by_files(realm: Realm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = realm.client(keytab_module(realm.alice, f"alice@{REALM}"))
    made = run(realm, config, "topics", "create", "by-keytab", "--partitions", "2", capture=capsys)
    assert made.code == 0, made.err
    (tmp_path / "job.py").write_text(JOB)
    given = {
        "kafka.bootstrap.servers": f"{realm.kdc.host}:{PORT + 1}",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": "kafka",
        # An executor runs in a folder of its own, where nothing but the file that is sent has this name.
        "kafka.sasl.jaas.config": keytab_module(Path(realm.alice.name), f"alice@{REALM}"),
    }
    ran = submitted("local-cluster[1,2,1024]", tmp_path, dict(SETTINGS), [realm.alice], given)
    assert json.loads(ran.stdout.splitlines()[-1]) == [*range(20)]
