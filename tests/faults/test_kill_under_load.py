"""kill -9 in the middle of a load, again and again: acknowledged records are there, once, in order.

``KLAMM_KILL_ROUNDS`` sets the number of rounds; the default keeps CI short.
"""

from __future__ import annotations

import random
import time

from broker_logs import server_log
from producing import Follower, Witness
from soak import rounds
from wire_client import create_topic

from engine.local.cluster import LocalCluster

ROUNDS = rounds("KLAMM_KILL_ROUNDS", 3)
PARTITIONS = 3


def test_nothing_acknowledged_is_lost_or_doubled(cluster: LocalCluster) -> None:
    address = cluster.bootstrap_servers
    witnesses = [
        # acks=all, in order and once, whatever happens: librdkafka resends what was not answered.
        Witness(address, "idempotent", PARTITIONS, {"enable.idempotence": True, "acks": "all"}),
        # acks=1, sent once and never again: a record answered before the kill must be there.
        Witness(address, "acks-1", PARTITIONS, {"acks": "1", "retries": 0, "compression.type": "lz4"}),
    ]
    for witness in witnesses:
        create_topic(address, witness.topic, partitions=PARTITIONS)
        witness.start()
    follower = Follower(address, "idempotent", PARTITIONS)
    follower.start()
    moments = random.Random(7)
    for _ in range(ROUNDS):
        for witness in witnesses:
            witness.wait_for_more(500)
        # There is no wait here, so that the kill may come at any point of the broker's work.
        time.sleep(moments.uniform(0, 0.1))
        cluster.kill_broker(0)
        cluster.start_broker(0)
    for witness in witnesses:
        witness.wait_for_more(500)
        witness.stop()
    idempotent, acks_1 = witnesses
    assert idempotent.check(address, exactly_once=True) > ROUNDS * 500
    assert acks_1.check(address, exactly_once=False) > ROUNDS * 500
    written = [partition.numbers for partition in idempotent.acknowledged]
    follower.stop_at([len(numbers) for numbers in written])
    assert follower.found == written, "a reader that was there all the time has seen everything once"
    log = server_log(cluster.broker(0).logs_path)
    assert log.count("clean_shutdown=False") == 2 * (ROUNDS + 1), "each of the two log dirs was recovered each time"
