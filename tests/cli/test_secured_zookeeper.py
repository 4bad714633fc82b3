"""A whole cluster on a ZooKeeper with TLS and logins: a broker of klamm's, the commands, and who owns the znodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from broker_program import BrokerProgram
from klamm_program import Ran, in_process
from secured_zookeeper import SecuredZooKeeper, secured_zookeeper

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.security import zk_security

PORT = 21291
CHROOT = "/cluster-a"
OWN = ["sasl:kafka:cdrwa", "world:anyone:r"]
SECRET = ["sasl:kafka:cdrwa"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    with secured_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(scope="module")
def broker(server: SecuredZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProgram]:
    """A broker that logs in as ``kafka`` over TLS, and protects its znodes."""
    settings = {
        "broker.id": "1",
        "zookeeper.connect": server.secure_connect_string + CHROOT,
        "zookeeper.set.acl": "true",
        "listeners": f"PLAINTEXT://{server.server.host}:{PORT}",
        "log.dirs": str(tmp_path_factory.mktemp("data")),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        **server.tls(),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={server.jaas('kafka')}")
        program = BrokerProgram(tmp_path_factory.mktemp("broker"), settings)
    with program:
        program.wait_until_started()
        yield program


class Operator:
    """Runs klamm on the cluster's ZooKeeper, over TLS unless told otherwise."""

    def __init__(self, server: SecuredZooKeeper, capture: pytest.CaptureFixture[str]) -> None:
        self.server, self.capture = server, capture

    def run(self, *words: str | Path, user: str | None = "kafka", tls: Mapping[str, str] | None = None) -> Ran:
        config = self.server.write(self.server.tls() if tls is None else tls)
        login = ("--jaas-config", self.server.jaas(user)) if user else ()
        where = ("--zookeeper", self.server.secure_connect_string + CHROOT, "--zk-tls-config-file", config)
        return in_process(*words, *where, *login, capture=self.capture)

    async def set_quota(self, user: str) -> None:
        """Write what a broker writes for a user's quota."""
        security = zk_security({}, {}, self.server.jaas("kafka"))
        async with await ZkClient.connect(self.server.connect_string + CHROOT, security=security) as client:
            await KafkaZkClient(client).configs.change_entity_configs(f"users/{user}", {"producer_byte_rate": "1"})

    def acls(self) -> dict[str, list[str]]:
        ran = self.run("zk", "tree", "--acl", "-o", "json")
        assert ran.code == 0, ran.err
        return {row["path"]: row["acl"] for row in ran.json}


@pytest.fixture
def operator(server: SecuredZooKeeper, broker: BrokerProgram, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(server, capsys)


def test_what_a_broker_and_the_tools_create_has_kafkas_access_lists(operator: Operator) -> None:
    for words in (
        ("topics", "create", "orders", "--partitions", "2", "--replication-factor", "1"),
        ("configs", "alter", "--yes", "--topic", "orders", "--add-config", "retention.ms=1000"),
        ("configs", "alter", "--yes", "--broker", "1", "--add-config", "log.cleaner.threads=2"),
        ("topics", "alter", "orders", "--partitions", "3", "--yes"),
        ("elect", "preferred", "--topic", "orders"),
        ("brokers", "list"),
        ("topics", "describe", "orders"),
    ):
        ran = operator.run(*words)
        assert ran.code == 0, (words, ran.err)
    asyncio.run(operator.set_quota("alice"))
    acls = operator.acls()
    assert {"/brokers/topics/orders", "/config/users/alice", "/brokers/ids/1"} <= set(acls)
    sensitive = ("/config/users", "/config/brokers", "/delegation_token/tokens")
    for path, acl in acls.items():
        expected = ["world:anyone:cdrwa"] if path == "/consumers" else SECRET if path.startswith(sensitive) else OWN
        assert acl == expected, path


def test_a_stranger_reads_what_is_no_secret_and_learns_what_it_lacks(operator: Operator) -> None:
    assert operator.run("topics", "list", user=None).code == 0
    seen = operator.run("zk", "tree", "-o", "json", user=None)
    assert seen.code == 0, seen.err
    rows = {row["path"]: row for row in seen.json}
    assert rows["/config/users"]["data"] is None and "hides it" in rows["/config/users"]["complaint"]
    assert "/config/topics" in rows and "/config/users/alice" not in rows
    quotas = operator.run("quotas", "list", user=None).err
    assert "hidden: quotas of users; a session without a login lacks read on znode /config/users" in quotas
    for user, who in ((None, "a session without a login"), ("alice", "sasl:alice")):
        ran = operator.run(
            "topics", "create", "strange", "--partitions", "1", "--replication-factor", "1", "-o", "json", user=user
        )
        assert (ran.code, ran.error["kind"]) == (4, "authorization"), ran.err
        assert f"ZooKeeper does not allow {who} to do this" in ran.error["message"]
        assert "sasl:kafka:cdrwa" in ran.error["hint"]


def test_a_wrong_password_ends_a_command_at_once(operator: Operator) -> None:
    jaas = operator.server.jaas("kafka", "wr0ng-Secr3t")
    config = operator.server.write(operator.server.tls())
    ran = in_process(
        "topics", "list", "--zookeeper", operator.server.secure_connect_string + CHROOT, "--zk-tls-config-file",
        config, "--jaas-config", jaas, "-o", "json", capture=operator.capture,
    )  # fmt: skip
    assert (ran.code, ran.error["kind"]) == (3, "authentication"), ran.err
    assert "ZooKeeper refuses kafka by DIGEST-MD5" in ran.error["message"]
    assert "Secr3t" not in ran.out + ran.err


def test_a_broker_with_a_wrong_password_ends_and_says_why(
    server: SecuredZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jaas = server.jaas("kafka", "wr0ng-Secr3t")
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={jaas}")
    settings = {
        "broker.id": "2",
        "zookeeper.connect": server.secure_connect_string + CHROOT,
        "listeners": f"PLAINTEXT://{server.server.host}:{PORT + 1}",
        "log.dirs": str(tmp_path / "data"),
        **server.tls(),
    }
    with BrokerProgram(tmp_path / "broker", settings) as program:
        assert program.process.wait(60) == 3
        assert "ZooKeeper refuses kafka by DIGEST-MD5" in program.stderr
        assert "Secr3t" not in program.stderr + program.server_log


def test_no_tls_at_a_port_that_wants_it(operator: Operator) -> None:
    words = ("topics", "list", "--zookeeper", operator.server.secure_connect_string + CHROOT, "-o", "json")
    ran = in_process(*words, capture=operator.capture)
    assert (ran.code, "ZooKeeper closes connections" in ran.error["message"]) == (3, True), ran.err
    assert "zookeeper.ssl.client.enable=true" in ran.error["hint"]


def test_opened_and_closed_again(operator: Operator) -> None:
    before = operator.acls()
    dry = operator.run("zk", "open", "--dry-run", "-o", "json")
    assert (dry.code, operator.acls()) == (0, before), dry.err
    assert {path["path"] for path in dry.json} == set(before) - {"/consumers"}
    assert operator.run("zk", "open").code == 2, "without a terminal it needs --yes"
    opened = operator.run("zookeeper-security-migration", "--zookeeper.acl", "unsecure")
    assert opened.code == 0, opened.err
    assert set(map(tuple, operator.acls().values())) == {("world:anyone:cdrwa",)}
    refused = operator.run("zk", "secure", "--yes", "-o", "json", user=None)
    assert (refused.code, "no identity" in refused.error["message"]) == (2, True), refused.err
    closed = operator.run("zk", "secure", "--yes", "-o", "json")
    assert closed.code == 0 and all(row["error"] is None for row in closed.json), closed.err
    assert "brokers without zookeeper.set.acl=true: 1" in closed.err
    assert operator.acls() == before
    again = operator.run("zk", "secure", "--yes", "-o", "json")
    assert (again.code, again.json) == (0, [])


def test_who_may_not_open_the_znodes_is_told_so(operator: Operator) -> None:
    before = operator.acls()
    ran = operator.run("zk", "open", "--yes", "-o", "json", user="alice")
    refused = [row for row in ran.json if row["error"] is not None]
    assert (ran.code, operator.acls(), len(refused) > 20) == (4, before, True), ran.err
    assert f"ZooKeeper refused {len(refused)} of {len(ran.json)} changes: log in as the brokers" in ran.err


def test_the_znodes_are_not_given_to_somebody_else_than_the_brokers(operator: Operator) -> None:
    before = operator.acls()
    ran = operator.run("zk", "secure", "--yes", "-o", "json", user="alice")
    assert (ran.code, operator.acls()) == (2, before), ran.err
    assert "broker 1 is sasl:kafka:cdrwa for ZooKeeper, and this session is sasl:alice" in ran.error["message"]


def test_a_missing_root_is_noticed_if_asked(operator: Operator) -> None:
    async def make() -> None:
        security = zk_security({}, {}, operator.server.jaas("kafka"))
        async with await ZkClient.connect(f"{operator.server.connect_string}/empty", security=security):
            pass

    asyncio.run(make())
    words = ("--zookeeper", f"{operator.server.connect_string}/empty", "--jaas-config", operator.server.jaas("kafka"))
    ran = in_process("zk", "secure", "--enable-path-check", "--yes", *words, "-o", "json", capture=operator.capture)
    assert (ran.code, "/brokers" in ran.error["message"]) == (2, True), ran.err
