"""Apache Kafka on a ZooKeeper with logins: klamm and Kafka's tools give every znode the same access list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from apache_kafka import ApacheKafkaBroker, run_tool
from klamm_program import Ran, in_process
from patience import within
from secured_zookeeper import SecuredZooKeeper, secured_zookeeper

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.security import zk_security

PORT = 21311
LOGIN = "-Djava.security.auth.login.config="


class Secured:
    """The running cluster, and what looks at its znodes."""

    def __init__(self, server: SecuredZooKeeper, capture: pytest.CaptureFixture[str] | None = None) -> None:
        self.server, self.capture = server, capture
        self.jaas = server.jaas("kafka")

    def klamm(self, *words: str) -> Ran:
        assert self.capture is not None
        where = ("--zookeeper", self.server.connect_string, "--jaas-config", self.jaas)
        return in_process(*words, *where, capture=self.capture)

    def acls(self) -> dict[str, list[str]]:
        """Return the access lists of all znodes but those that only exist for a moment."""
        ran = self.klamm("zk", "tree", "--acl", "-o", "json")
        assert ran.code == 0, ran.err
        fleeting = ("/isr_change_notification/", "/config/changes/")
        return {row["path"]: row["acl"] for row in ran.json if not row["path"].startswith(fleeting)}

    def wait_for_leader(self, topic: str) -> None:
        is_in_time = within(30)
        while self.klamm("topics", "describe", topic, "-o", "json").json[0]["partitions"][0]["leader"] != 1:
            assert is_in_time(), f"{topic} has no leader"

    def migrate(self, kind: str) -> None:
        """Run Kafka's own tool."""
        done = run_tool(
            "kafka.admin.ZkSecurityMigrator", "--zookeeper.acl", kind, "--zookeeper.connect", self.server.connect_string
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    with secured_zookeeper(tmp_path_factory.mktemp("zookeeper"), has_tls=False) as running:
        yield running


@pytest.fixture(scope="module")
def login(server: SecuredZooKeeper) -> Iterator[None]:
    """Every Java process from now on logs in as ``kafka``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"{LOGIN}{server.jaas('kafka')}")
        yield


@pytest.fixture(scope="module")
def broker(
    server: SecuredZooKeeper, login: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafkaBroker]:
    with ApacheKafkaBroker(
        tmp_path_factory.mktemp("kafka"),
        broker_id=1,
        host=server.server.host,
        port=PORT,
        zookeeper_connect=server.connect_string,
        overrides={"zookeeper.set.acl": "true"},
        heap="300m",
    ) as running:
        yield running


@pytest.fixture
def secured(server: SecuredZooKeeper, broker: ApacheKafkaBroker, capsys: pytest.CaptureFixture[str]) -> Secured:
    return Secured(server, capsys)


def test_topics_and_settings_have_the_lists_that_kafka_gives_them(secured: Secured) -> None:
    made = run_tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"{secured.server.server.host}:{PORT}",
        "--create", "--topic", "kafkas", "--partitions", "1", "--replication-factor", "1",
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    users = run_tool(
        "kafka.admin.ConfigCommand", "--zookeeper", secured.server.connect_string, "--alter", "--entity-type", "users",
        "--entity-name", "kafkas", "--add-config", "SCRAM-SHA-256=[password=a-Secr3t]",
    )  # fmt: skip
    assert users.returncode == 0, users.stdout + users.stderr
    for words in (
        ("topics", "create", "klamms", "--partitions", "1", "--replication-factor", "1"),
        ("configs", "alter", "--topic", "klamms", "--add-config", "retention.ms=100000", "--yes"),
    ):
        ran = secured.klamm(*words)
        assert ran.code == 0, ran.err
    secured.wait_for_leader("klamms")
    acls = secured.acls()
    by_klamm = {path.replace("klamms", "kafkas"): acl for path, acl in acls.items() if "klamms" in path}
    assert {path: acl for path, acl in acls.items() if path in by_klamm} == by_klamm
    assert len(by_klamm) == 5 and acls["/config/users/kafkas"] == ["sasl:kafka:cdrwa"]


def test_closing_and_opening_does_what_kafkas_migration_tool_does(secured: Secured) -> None:
    made_by_kafka = secured.acls()
    secured.migrate("unsecure")
    opened_by_kafka = secured.acls()
    secured.migrate("secure")
    closed_by_kafka = secured.acls()
    assert secured.klamm("zk", "secure", "--yes", "-o", "json").json == [], "there is nothing left to close"
    assert secured.klamm("zk", "open", "--yes").code == 0
    assert secured.acls() == opened_by_kafka
    assert secured.klamm("zk", "secure", "--yes").code == 0
    assert secured.acls() == closed_by_kafka
    assert {path: acl for path, acl in closed_by_kafka.items() if path in made_by_kafka and path != "/"} == {
        path: acl for path, acl in made_by_kafka.items() if path != "/"
    }
    # The roots that Kafka's tool has made show which there are: none is missing from klamm's list.
    from engine.kafka.zk.acl_policy import SECURE_ROOTS

    assert set(SECURE_ROOTS) <= set(closed_by_kafka)
    roots = {path for path in closed_by_kafka if path.count("/") == 1 and path not in ("/", "/consumers", "/zookeeper")}
    assert roots <= set(SECURE_ROOTS)


def test_a_broker_goes_on_after_the_znodes_were_closed(secured: Secured) -> None:
    async def strangers() -> list[bool]:
        async with await ZkClient.connect(secured.server.connect_string, security=zk_security({}, {})) as client:
            return [await _may_read(client, path) for path in ("/brokers/topics", "/config/users")]

    assert asyncio.run(strangers()) == [True, False]
    ran = secured.klamm("topics", "create", "later", "--partitions", "1", "--replication-factor", "1")
    assert ran.code == 0, ran.err
    secured.wait_for_leader("later")


async def _may_read(client: ZkClient, path: str) -> bool:
    from engine.kafka.zk.errors import NoAuth

    try:
        await client.get(path)
    except NoAuth:
        return False
    return True
