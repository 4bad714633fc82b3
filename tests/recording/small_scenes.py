"""Scenes of smaller clusters: an old inter-broker protocol, znodes of old tools, access lists and delegation tokens."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from recorded_kafka import REASSIGN, TOPICS, RecordedCluster

IBP_2_6 = {
    "inter.broker.protocol.version": "2.6",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "5",
}
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURE = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "delegation.token.secret.key": "geheim",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{_PLAIN} user_admin="admin" user_alice="alice";',
}
ACLS = "kafka.admin.AclCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"


def play_ibp_2_6(c: RecordedCluster) -> None:
    """Two brokers with the inter-broker protocol of 2.6, which are upgraded at the end."""
    with c.scene("01-brokers-start", "two brokers, inter.broker.protocol.version=2.6"):
        c.start(0)
        c.start(1, {"zookeeper.session.timeout.ms": "80000"})
        c.wait_acquainted()
    with c.scene("02-topic-created", "kafka-topics --create --topic t1 --replica-assignment 0:1,1:0"):
        c.tool(TOPICS, "--create", "--topic", "t1", "--replica-assignment", "0:1,1:0")
    note = "broker 1 stopped (SIGSTOP; its session of 80 s stays): the leader writes the state znode itself and makes "
    with c.scene("03-isr-shrinks", note + "/isr_change_notification nodes"):
        c.brokers[1].process.pause()
        c.produce("t1", [0], count=5, acks="1")
        c.wait(lambda: '"isr":[0]' in c.get("/brokers/topics/t1/partitions/0/state"), "an ISR without 1")
        notice = "/isr_change_notification/isr_change_"
        c.wait(lambda: c.wrote(notice), "the notification")
    with c.scene("04-isr-expands", "broker 1 continues; OffsetForLeaderEpoch from the follower, ISR expands"):
        c.brokers[1].process.resume()
        c.wait_in_sync("t1")
    note = "t1-1 [1,0] -> [0]: one replica less; then [0] -> [1,0]: one more; the automatic preferred election "
    with c.scene("05-reassignment", note + "(leader.imbalance.check.interval.seconds=5) moves the leader back to 1"):
        for replicas in ([0], [1, 0]):
            plan = c.json_file([{"topic": "t1", "partition": 1, "replicas": replicas}])
            c.tool(REASSIGN, "--execute", "--reassignment-json-file", plan)
            c.wait_reassigned()
        c.wait(lambda: '"leader":1' in c.get("/brokers/topics/t1/partitions/1/state"), "leader 1")
    with c.scene("07-topic-deleted", "kafka-topics --delete --topic t1"):
        c.tool(TOPICS, "--delete", "--topic", "t1")
    note = "producer ids at IBP 2.6: each broker claimed a block of /latest_producer_id_block when it started"
    with c.scene("08-idempotent-producer", note):
        c.tool(TOPICS, "--create", "--topic", "t2", "--replica-assignment", "1:0")
        producer = Producer({"bootstrap.servers": c.address(0), "enable.idempotence": True})
        producer.produce("t2", b"v")
        producer.flush(60)
        del producer
    with c.scene("09-controlled-shutdown", "broker 1 ended with SIGTERM"):
        c.stop(1)
    with c.scene("10-back", "broker 1 starts"):
        c.start(1)
        c.wait_in_sync("t2")
    note = "both brokers restarted one by one with inter.broker.protocol.version 3.9: topic ids, /feature"
    with c.scene("11-upgrade-ibp-3.9", note):
        for broker_id in (1, 0):
            c.stop(broker_id)
            c.start(broker_id, {"inter.broker.protocol.version": "3.9"})
            c.wait_acquainted()
            c.wait_in_sync("t2")


def play_legacy_bad(c: RecordedCluster) -> None:
    """Reassignment znodes as nobody should write them."""
    for broker_id in range(3):
        c.start(broker_id)
    c.wait_acquainted()
    for topic in ("fine", "twice"):
        c.tool(TOPICS, "--create", "--topic", topic, "--replica-assignment", "0:1,1:2,2:0")
    path, rows = "/admin/reassign_partitions", [("nosuch", 0, [1, 2]), ("fine", 0, [0, 1]), ("fine", 7, [1, 2])]
    partitions = [{"topic": t, "partition": p, "replicas": replicas} for t, p, replicas in rows]
    note = "nosuch-0 -> [1,2]; fine-0 -> its present list; fine-7 (no such partition)"
    with c.scene("01-unknown-topic-and-already-done", note):
        c.create(path, {"version": 1, "partitions": partitions})
    note = "twice-1 [1,2] -> [0,0]: becomes [0]; the entry is never removed from the znode"
    with c.scene("02-duplicate-replica", note):
        c.wait(lambda: "reassign_partitions" not in c.children("/admin"), "the end of the znode")
        twice = {"topic": "twice", "partition": 1, "replicas": [0, 0]}
        c.create(path, {"version": 1, "partitions": [twice]})


def play_secure(c: RecordedCluster) -> None:
    """Access lists and delegation tokens."""
    # No broker 1 is there, so its address is free.
    sasl = c.told_address(1)
    with c.scene("01-start", "one broker with AclAuthorizer, two listeners (PLAINTEXT, SASL_PLAINTEXT), token key"):
        own = f"SASL_PLAINTEXT://{sasl}"
        listeners = f"PLAINTEXT://{c.address(0)},{own}"
        c.start(0, {"listeners": listeners, "advertised.listeners": f"PLAINTEXT://{c.told_address(0)},{own}"})
    with c.scene(
        "02-acls-added", "kafka-acls: literal, prefixed, wildcard, group, cluster, transactional id, token, user"
    ):
        _add_acls(c)
    with c.scene("03-acl-removed", "kafka-acls --remove of one entry"):
        bob = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "All")
        c.tool(ACLS, "--remove", "--force", *bob, "--topic", "orders")
    client = Path(c.json_file([])).with_name("admin.properties")
    jaas = f'{_PLAIN} username="admin" password="admin";'
    client.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
    note = "kafka-delegation-tokens: create (with renewer, with owner), expire"
    with c.scene("05-delegation-tokens", note):
        tokens = ("--command-config", str(client))
        create = ("--create", "--max-life-time-period", "-1")
        c.tool(TOKENS, *tokens, *create, "--renewer-principal", "User:alice", at=sasl)
        c.tool(TOKENS, *tokens, *create, "--owner-principal", "User:bob", at=sasl)


def _add_acls(c: RecordedCluster) -> None:
    alice = ("--allow-principal", "User:alice", "--operation")
    for words in (
        (*alice, "Read", "--operation", "Describe", "--topic", "orders"),
        (*alice, "Read", "--topic", "orders"),
        ("--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "All", "--topic", "orders"),
        ("--allow-principal", "User:alice", "--producer", "--topic", "ord", "--resource-pattern-type", "prefixed"),
        ("--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "readers"),
        ("--allow-principal", "User:*", "--operation", "Describe", "--topic", "*"),
        ("--allow-principal", "User:ops", "--operation", "ClusterAction", "--cluster"),
        (*alice, "Write", "--transactional-id", "app"),
        (*alice, "Describe", "--delegation-token", "tok"),
        (*alice, "CreateTokens", "--user-principal", "User:bob"),
        ("--allow-principal", "User:CN=Broker,O=Castle", "--operation", "Read", "--topic", "name with spaces"),
    ):
        c.tool(ACLS, "--add", *words)
