"""The life of three brokers, scene by scene: topics, reassignments, elections, deaths and returns, settings.

Where chance would choose (replicas of a new topic, who becomes controller) the scenes choose, so that the recordings of
two runs are of the same things. Scene numbers are those of the first recording; some of its scenes are not played.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer
from recorded_kafka import CONFIGS, ELECT, REASSIGN, TOPICS, RecordedCluster

SHORT_SESSION, LONG_SESSION = "6000", "80000"
MOVE = [("move", 0, [1, 2]), ("move", 1, [0, 2])]


def play_main(cluster: RecordedCluster) -> None:
    """Play all scenes."""
    for play in (_start, _topics, _moves, _order_and_elections, _deaths, _leaderless, _waiting_deletion, _settings,
                 _clients, _sessions, _end):  # fmt: skip
        play(cluster)


def _start(c: RecordedCluster) -> None:
    with c.scene("01-first-broker-starts", "empty ZooKeeper; broker 0 (rack a) starts and becomes controller"):
        _start_broker(c, 0)
    with c.scene("02-second-and-third-broker-start", "brokers 1 (rack b) and 2 (rack c) start"):
        _start_broker(c, 1)
        _start_broker(c, 2)


def _start_broker(c: RecordedCluster, broker_id: int, session: str = SHORT_SESSION) -> None:
    # Broker 2 has two log dirs: one of them fails in a scene.
    folder = c.log_dir(broker_id)
    log_dirs = f"{folder},{folder}-2" if broker_id == 2 else str(folder)
    settings = {"broker.rack": "abc"[broker_id], "log.dirs": log_dirs, "zookeeper.session.timeout.ms": session}
    c.start(broker_id, settings)
    c.wait_acquainted()


def _topics(c: RecordedCluster) -> None:
    words = ("--create", "--topic", "t1", "--replica-assignment", "1:2:0,2:0:1,0:1:2")
    with c.scene("03-topic-created", "kafka-topics " + " ".join(words)):
        c.tool(TOPICS, *words)
    words = ("--create", "--topic", "manual", "--replica-assignment", "0:1,1:2,2:0")
    words += ("--config", "max.message.bytes=2000000")
    with c.scene("04-topic-created-manual", "kafka-topics " + " ".join(words)):
        c.tool(TOPICS, *words)
    words = ("--alter", "--entity-type", "topics", "--entity-name", "t1")
    add = ("--add-config", "retention.ms=3600000,min.insync.replicas=2")
    note = f"kafka-configs {' '.join((*words, *add))}; then --delete-config retention.ms"
    with c.scene("05-topic-config-altered", note):
        c.tool(CONFIGS, *words, *add)
        c.tool(CONFIGS, *words, "--delete-config", "retention.ms")
    words = ("--alter", "--topic", "t1", "--partitions", "5")
    words += ("--replica-assignment", "1:2:0,2:0:1,0:1:2,1:2:0,2:0:1")
    with c.scene("06-partitions-added", "kafka-topics " + " ".join(words)):
        c.tool(TOPICS, *words)


def _moves(c: RecordedCluster) -> None:
    c.tool(TOPICS, "--create", "--topic", "move", "--replica-assignment", "0:1,1:2")
    c.produce("move", range(2), count=4000)
    plan = _plan(c, MOVE)
    note = (
        "move-0 [0,1]->[1,2], move-1 [1,2]->[0,2] by kafka-reassign-partitions --execute --throttle 100000; recorded "
    )
    with c.scene("07a-reassignment-under-way", note + "while it runs"):
        _reassign(c, plan, "--throttle", "100000")
    note = "throttle raised by --execute --additional --throttle 100000000, waited for the end, "
    with c.scene("07b-reassignment-finishes", note + "--verify clears the throttles"):
        _reassign(c, plan, "--additional", "--throttle", "100000000")
        c.wait_reassigned()
        c.tool(REASSIGN, "--verify", "--reassignment-json-file", plan)
    back = _plan(c, [("move", 0, [0, 1])])
    with c.scene("08-reassignment-cancelled", "move-0 [1,2]->[0,1] throttled to 50000 B/s, then --cancel"):
        _reassign(c, back, "--throttle", "50000")
        c.tool(REASSIGN, "--cancel", "--reassignment-json-file", back)


def _order_and_elections(c: RecordedCluster) -> None:
    note = "t1-0: replica list rotated by one (leader stays, preferred leader becomes another)"
    with c.scene("09-reassignment-order-only", note):
        _reassign(c, _plan(c, [("t1", 0, [2, 0, 1])]))
        c.wait_reassigned()
    words = ("--election-type", "preferred", "--topic", "t1", "--partition", "0")
    with c.scene("10-preferred-election-api", "kafka-leader-election " + " ".join(words)):
        c.tool(ELECT, *words)
    note = "t1-1 rotated, then /admin/preferred_replica_election created by hand for t1-1, t1-2 (already led by its "
    with c.scene("11-preferred-election-znode", note + "preferred replica), and nosuch-0"):
        _reassign(c, _plan(c, [("t1", 1, [0, 1, 2])]))
        c.wait_reassigned()
        c.settle()
        wanted = [("t1", 1), ("t1", 2), ("nosuch", 0)]
        _by_hand(c, "/admin/preferred_replica_election", [{"topic": t, "partition": p} for t, p in wanted])
    note = "/admin/reassign_partitions created by hand: manual-0 [0,1]->[1,2], manual-1 [1,2]->[0,2]"
    with c.scene("12-legacy-reassignment-znode", note):
        _by_hand(c, "/admin/reassign_partitions", _rows([("manual", 0, [1, 2]), ("manual", 1, [0, 2])]))
    with c.scene("14-topic-deleted", "kafka-topics --delete --topic manual"):
        c.tool(TOPICS, "--delete", "--topic", "manual")


def _by_hand(c: RecordedCluster, path: str, partitions: list[dict[str, object]]) -> None:
    c.create(path, {"version": 1, "partitions": partitions})
    c.wait(lambda: path.rpartition("/")[2] not in c.children("/admin"), f"the end of {path}")


def _deaths(c: RecordedCluster) -> None:
    with c.scene("15-broker-killed", "broker 2 (not the controller, which is 0) killed with -9; its session ends"):
        c.kill(2)
    with c.scene("16-broker-back", "broker 2 starts again"):
        # From here on it keeps its session while it is paused for long.
        _back(c, 2, LONG_SESSION)
    with c.scene("17-controlled-shutdown", "broker 1 (controller is 0) ended with SIGTERM"):
        c.stop(1)
    with c.scene("18-broker-back-after-controlled-shutdown", "broker 1 starts again"):
        _back(c, 1)
    with c.scene("19-controller-killed", "controller 0 killed with -9"):
        c.kill(0)
        c.wait(lambda: "controller" in c.children("/"), "another controller")
    with c.scene("20-old-controller-back", "broker 0 starts again, not as controller"):
        _back(c, 0)
    second = c.controller_id
    with c.scene("21-controller-controlled-shutdown", f"controller {second} ended with SIGTERM"):
        c.stop(second)
        c.wait(lambda: "controller" in c.children("/"), "another controller")
    with c.scene("22-old-controller-back-2", f"broker {second} starts again"):
        _back(c, second, LONG_SESSION if second == 2 else SHORT_SESSION)
    note = "/controller deleted by hand: resignation and election while all brokers live; 1 and 2 hang until 0 has won"
    with c.scene("23-controller-znode-deleted", note):
        # Who wins would be chance; later scenes are those of controller 0.
        for broker_id in (1, 2):
            c.brokers[broker_id].process.pause()
        c.delete("/controller")
        c.wait(lambda: "controller" in c.children("/"), "another controller")
        for broker_id in (1, 2):
            c.brokers[broker_id].process.resume()


def _back(c: RecordedCluster, broker_id: int, session: str = SHORT_SESSION) -> None:
    _start_broker(c, broker_id, session)
    c.wait_in_sync("t1", "move")


def _leaderless(c: RecordedCluster) -> None:
    # So far chance has chosen leaders. Broker 1 must lead nothing: it dies, and only `lag-1` should lose its leader.
    c.tool(ELECT, "--election-type", "preferred", "--all-topic-partitions")
    for broker_id, session in ((2, LONG_SESSION), (1, SHORT_SESSION)):
        c.stop(broker_id)
        _back(c, broker_id, session)
    c.tool(TOPICS, "--create", "--topic", "lag", "--replica-assignment", "0:2,1:2")
    c.produce("lag", range(2), count=5)
    c.wait_in_sync("lag")
    c.settle()
    note = "broker 2 stopped (SIGSTOP; its session of 80 s stays): leaders 0 and 1 take it out of the ISRs by "
    with c.scene(
        "24-isr-shrinks", note + "AlterPartition after replica.lag.time.max.ms (30 s here); acks=1 records after that"
    ):
        c.brokers[2].process.pause()
        c.produce("lag", range(2), count=5, acks="1")
        states = [f"/brokers/topics/lag/partitions/{p}/state" for p in (0, 1)]
        c.wait(lambda: all(f'"isr":[{p}]' in c.get(state) for p, state in enumerate(states)), "ISRs without 2")
        c.produce("lag", range(2), count=5, acks="1")
    note = "broker 1, the only ISR member of lag-1, killed with -9 while 2 still hangs; then 2 continues: lag-1 stays "
    with c.scene("25-leaderless", note + "without leader"):
        c.kill(1)
        c.wait(lambda: '"leader":-1' in c.get("/brokers/topics/lag/partitions/1/state"), "the end of lag-1's leader")
        c.brokers[2].process.resume()
        c.wait(lambda: '"isr":[0,2]' in c.get("/brokers/topics/lag/partitions/0/state"), "2 in sync with lag-0")
    words = ("--election-type", "unclean", "--topic", "lag", "--partition", "1")
    note = "; leader 2 with leader_recovery_state 1, then RECOVERED"
    with c.scene("26-unclean-election", "kafka-leader-election " + " ".join(words) + note):
        c.tool(ELECT, *words)
    note = "broker 1 back (its records of lag-1 that 2 never had are truncated): ISRs expand through AlterPartition"
    with c.scene("27-isr-expands", note):
        _start_broker(c, 1)
        c.wait_in_sync("t1", "move", "lag")


def _waiting_deletion(c: RecordedCluster) -> None:
    c.stop(2)
    _back(c, 2)
    with c.scene(
        "28-deletion-waits-for-a-dead-broker", "broker 2 killed, then kafka-topics --delete --topic lag: waits"
    ):
        c.kill(2)
        c.tool(TOPICS, "--delete", "--topic", "lag")
    with c.scene("29-deletion-resumes", "broker 2 back: the deletion completes"):
        _back(c, 2)
        c.wait(lambda: not c.children("/admin/delete_topics"), "the end of the deletion")


def _settings(c: RecordedCluster) -> None:
    alice = ("--alter", "--entity-type", "users", "--entity-name", "alice")
    scram = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    note = "kafka-configs --alter --entity-type users --entity-name alice --add-config " + scram
    note += ",SCRAM-SHA-512=[password=secret]; user 'name with*stars'; then SCRAM-SHA-512 deleted"
    with c.scene("30-scram-user", note):
        c.tool(CONFIGS, *alice, "--add-config", scram + ",SCRAM-SHA-512=[password=secret]")
        c.tool(
            CONFIGS,
            "--alter",
            "--entity-type",
            "users",
            "--entity-name",
            "name with*stars",
            "--add-config",
            "SCRAM-SHA-256=[password=secret]",
        )
        c.tool(CONFIGS, *alice, "--delete-config", "SCRAM-SHA-512")
    note = "quotas for user, client, user+client, the three kinds of default, ip, ip default; one deleted"
    user, client = (
        ("--entity-type", "users", "--entity-name", "alice"),
        ("--entity-type", "clients", "--entity-name", "app 1"),
    )
    users, clients = ("--entity-type", "users", "--entity-default"), ("--entity-type", "clients", "--entity-default")
    with c.scene("31-client-quotas", note):
        c.tool(CONFIGS, "--alter", *user, "--add-config", "producer_byte_rate=1048576,consumer_byte_rate=2097152")
        c.tool(CONFIGS, "--alter", *client, "--add-config", "request_percentage=50")
        c.tool(CONFIGS, "--alter", *user, *client, "--add-config", "producer_byte_rate=1024")
        c.tool(CONFIGS, "--alter", *users, "--add-config", "producer_byte_rate=100000000")
        c.tool(CONFIGS, "--alter", *clients, "--add-config", "controller_mutation_rate=10")
        c.tool(CONFIGS, "--alter", *users, *clients, "--add-config", "consumer_byte_rate=100000000")
        ip = ("--alter", "--entity-type", "ips")
        c.tool(CONFIGS, *ip, "--entity-name", "127.0.0.1", "--add-config", "connection_creation_rate=1000")
        c.tool(CONFIGS, *ip, "--entity-default", "--add-config", "connection_creation_rate=2000")
        c.tool(CONFIGS, "--alter", *client, "--delete-config", "request_percentage")
    broker = ("--alter", "--entity-type", "brokers")
    note = "kafka-configs --alter: broker 1: num.io.threads=10; all brokers (--entity-default): log.cleaner.threads=2"
    with c.scene("32-dynamic-broker-config", note):
        c.tool(CONFIGS, *broker, "--entity-name", "1", "--add-config", "num.io.threads=10")
        c.tool(CONFIGS, *broker, "--entity-default", "--add-config", "log.cleaner.threads=2")
    loggers = ("--alter", "--entity-type", "broker-loggers", "--entity-name", "0")
    password = "listener.name.plaintext.ssl.keystore.password=geheim"
    with c.scene("32b-password-and-logger", "broker 1: a password; broker 0: the level of a logger"):
        c.tool(CONFIGS, *broker, "--entity-name", "1", "--add-config", password)
        c.tool(CONFIGS, *loggers, "--add-config", "kafka.server.KafkaApis=DEBUG")


def _clients(c: RecordedCluster) -> None:
    with c.scene("33-consumer-group", "first consumer group: __consumer_offsets is created by the broker"):
        consumer = Consumer({"bootstrap.servers": c.address(0), "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t1"])
        c.produce("t1", range(5), count=2)
        deadline = time.monotonic() + 60
        while consumer.poll(0.5) is None and time.monotonic() < deadline:
            pass
        consumer.commit(asynchronous=False)
        consumer.close()
    note = (
        "first transactional producer: __transaction_state is created, AllocateProducerIds, /latest_producer_id_block"
    )
    with c.scene("34-producer-ids", note):
        for number in range(4):
            producer = Producer({"bootstrap.servers": c.address(0), "transactional.id": f"tx-{number}"})
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce("t1", b"v", partition=number)
            producer.commit_transaction(60)


def _sessions(c: RecordedCluster) -> None:
    other = next(b for b in c.brokers if b != c.controller_id)
    note = (
        "a broker that is not the controller stopped (SIGSTOP) for longer than the session, then continued: new session"
    )
    with c.scene("35-session-expires", note):
        _pause_past_session(c, other)
    note = (
        "the controller stopped (SIGSTOP) for longer than its session, then continued: it learns that it was replaced"
    )
    with c.scene("36-controller-session-expires", note):
        _pause_past_session(c, c.controller_id)
    with c.scene("38-log-dir-fails", "one of broker 2's two log dirs vanishes: /log_dir_event_notification"):
        _fail_second_log_dir(c)


def _pause_past_session(c: RecordedCluster, broker_id: int) -> None:
    process = c.brokers[broker_id].process
    process.pause()
    c.wait(lambda: str(broker_id) not in c.children("/brokers/ids"), "the end of the session")
    process.resume()
    c.wait(lambda: str(broker_id) in c.children("/brokers/ids"), "a new session")
    c.wait_in_sync("t1", "move")


def _fail_second_log_dir(c: RecordedCluster) -> None:
    second = c.log_dir(2).with_name("data-2")
    if not list(second.glob("*-*/*.log")):
        raise RuntimeError("broker 2 has no partition in its second log dir")
    second.rename(second.with_name("hidden"))
    second.write_text("no folder\n")
    # The broker's next checkpoint of high watermarks fails, within five seconds.
    c.wait(lambda: c.wrote("/log_dir_event_notification/"), "the notice of a failed log dir")


def _end(c: RecordedCluster) -> None:
    with c.scene("40-all-brokers-end", "SIGTERM to 0, 1, 2 one after the other"):
        for broker_id in sorted(c.brokers):
            c.stop(broker_id)


def _rows(moves: list[tuple[str, int, list[int]]]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": partition, "replicas": replicas} for topic, partition, replicas in moves]


def _plan(c: RecordedCluster, moves: list[tuple[str, int, list[int]]]) -> str:
    return c.json_file(_rows(moves))


def _reassign(c: RecordedCluster, plan: str, *words: str) -> None:
    c.tool(REASSIGN, "--execute", "--reassignment-json-file", plan, *words)
