"""Rounds of random faults under load; nothing may be missing once it is quiet after a round.

    KLAMM_FAULT_ROUNDS=500 KLAMM_FAULT_SEED=7 pytest -s tests/cluster/test_faults.py

A line per round says what was done. A table at the end says how long each kind took to heal. A round takes 6 to 8 s on
two cores, so 500 take about an hour. The seed decides which faults come and how long they last; their effects differ
from run to run. ``KLAMM_FAULT_KINDS=kill_broker,fill_disk`` injects only these; ``KLAMM_FAULT_IBP=2.6`` makes the
brokers speak as Kafka 2.6 did, whose leaders wrote ISR changes to ZooKeeper themselves. ``make soak`` runs both. A few
more rounds kill and freeze brokers that talk to each other and to clients over SASL_SSL.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_checks import assert_quiet_and_whole
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from fault_cluster import FaultCluster
from faults import ALL as ALL_FAULTS
from faults import Fault, Injected, freeze_broker, freeze_controller, kill_all_brokers, kill_broker, kill_controller
from operations import ALL as ALL_OPERATIONS
from sequence_writers import SLOW, KafkaPythonSender, LibrdkafkaSender, Writer
from soak import SOAK, rounds
from tailing_reader import TailingReader
from wire_client import create_topic

ROUNDS = rounds("KLAMM_FAULT_ROUNDS", 10)
SECURED_ROUNDS = rounds("KLAMM_FAULT_ROUNDS", 4)
SEED = int(os.environ.get("KLAMM_FAULT_SEED", "11"))
"""Its ten rounds include all kinds of faults and operations but one. A long run uses another seed."""

IBPS = os.environ.get("KLAMM_FAULT_IBP", "3.9" if SOAK == 1 else "3.9,2.6").split(",")
KINDS = [f for f in ALL_FAULTS if f.__name__ in os.environ.get("KLAMM_FAULT_KINDS", f.__name__).split(",")]
KILLING = [kill_broker, kill_controller, kill_all_brokers, freeze_broker, freeze_controller]
"""Faults of brokers, after which connections are made anew or a handshake ends in the middle."""
PARTITIONS = 6
ROUNDS_PER_TOPIC = 10
"""Each check reads a topic from the beginning.

A new topic now and then keeps that short, and the old one is deleted.
"""

# See KafkaPythonSender.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <(socket|ssl):ResourceWarning"),
    pytest.mark.timeout(60 + 120 * ROUNDS),
]


class Rounds:
    """A cluster, its writers, and the current topic."""

    def __init__(self, cluster: FaultCluster, rng: random.Random, kinds: Sequence[Fault]) -> None:
        self.cluster = cluster
        self.rng = rng
        self._faults = kinds
        bootstrap, clients = cluster.bootstrap_of_clients, cluster.clients
        self.writers = [
            Writer("rdkafka", LibrdkafkaSender(bootstrap, **clients)),
            Writer("python", KafkaPythonSender(bootstrap, **_as_kafka_python_has_them(clients)), records_per_s=SLOW),
        ]
        # Its acknowledgements prove nothing: its records are cut off again and again, the same ones on all replicas.
        self.loose = Writer(
            "loose",
            LibrdkafkaSender(bootstrap, **{"enable.idempotence": False, "acks": "1"}, **clients),
            records_per_s=SLOW,
        )
        self.topic = ""
        self.reader: TailingReader | None = None
        self._seen: dict[str, list[float]] = {}

    def run(self, number: int) -> str:
        """Run one round and return a description of it; remember it for ``summary``."""
        round_began = time.monotonic()
        if number % ROUNDS_PER_TOPIC == 0:
            self._next_topic(number)
        for writer in (*self.writers, self.loose):
            writer.start(self.topic, PARTITIONS)
        began = time.monotonic()
        kinds, done = self._inject()
        time.sleep(self.rng.uniform(0.2, 4.0))
        hurt_s = time.monotonic() - began
        for injected in sorted(done, key=lambda each: each.undo_rank):
            injected.undo()
        healed_s = time.monotonic() - began
        self.cluster.wait_in_sync(self._all_topics())
        in_sync_s = time.monotonic() - began
        for writer in (*self.writers, self.loose):
            writer.stop()
        checked = assert_quiet_and_whole(self.cluster, self.topic, self.writers, reader=self.reader)
        assert checked, "no record was acknowledged"
        assert self.reader is not None and any(self.reader.seen.values()), "the reader has read nothing"
        self._elect_preferred()
        faults = ", ".join(injected.text for injected in done)
        for kind in kinds:
            self._seen.setdefault(kind, []).append(in_sync_s - healed_s)
        round_s = time.monotonic() - round_began
        times = (
            f"hurt {hurt_s:.1f} s, healed at {healed_s:.1f} s, in sync at {in_sync_s:.1f} s, checked at {round_s:.1f} s"
        )
        return f"round {number}: {faults}; {times}; {checked} acknowledged records are there"

    def summary(self) -> str:
        """Return a table: how many rounds had each kind of fault or operation, and how long healing took."""
        rows = [f"{'kind':<24}{'rounds':>7}{'in sync again after, s: median':>32}{'max':>7}"]
        for kind, seen in sorted(self._seen.items()):
            rows.append(f"{kind:<24}{len(seen):>7}{statistics.median(seen):>32.1f}{max(seen):>7.1f}")
        return "\n".join(rows)

    def _inject(self) -> tuple[list[str], list[Injected]]:
        """Inject one fault. In a third of the rounds add a second fault, in a third an operator's change in between."""
        wanted = [self.rng.choice(self._faults)]
        if self.rng.random() < 0.33:
            wanted.append(self.rng.choice(ALL_OPERATIONS))
            self.rng.shuffle(wanted)
        if self.rng.random() < 0.33:
            wanted.append(self.rng.choice(self._faults))
        kinds, done = [], []
        for inject in wanted:
            time.sleep(self.rng.uniform(0.0, 1.5))
            injected = inject(self.cluster, self.rng)
            if injected is not None:
                kinds.append(inject.__name__)
                done.append(injected)
        return kinds, done

    def _elect_preferred(self) -> None:
        """Move the leaders back, so that the next fault hits one."""
        # A client without a name would be collected before its answer arrives.
        admin = self._admin()
        wanted = [ClientPartition(self.topic, partition) for partition in range(PARTITIONS)]
        results = admin.elect_leaders(ElectionType.PREFERRED, wanted).result()
        refused = {str(p): str(error) for p, error in results.items() if error is not None}
        assert all("ELECTION_NOT_NEEDED" in error for error in refused.values()), refused

    def _admin(self) -> AdminClient:
        """Return a new client: librdkafka's keeps asking a former controller."""
        return AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})

    def _next_topic(self, number: int) -> None:
        self._end_reader()
        old = [name for name in self._all_topics() if not name.startswith("__")]
        if old:
            admin = self._admin()
            for future in admin.delete_topics(old, operation_timeout=30).values():
                future.result()
            self.cluster.wait_for("deleted topics are gone", lambda: not self._traces(old), timeout_s=60.0)
        self.topic = f"records-{number}"
        create_topic(self.cluster.broker(0).address, self.topic, partitions=PARTITIONS, replication_factor=3)
        clients = self.cluster.clients
        self.reader = TailingReader(self.cluster.bootstrap_of_clients, self.topic, PARTITIONS, **clients)

    def _all_topics(self) -> list[str]:
        names: list[str] = self.cluster.zk(lambda zk: zk.topics.get_all_topics())
        return sorted(names)

    def _traces(self, topics: list[str]) -> list[str]:
        """Return what is left of topics: znodes, and folders in log dirs."""
        left = [name for name in self._all_topics() if name in topics]
        for broker in self.cluster.local.brokers.values():
            for log_dir in broker.spec.log_dirs:
                left += [
                    str(path) for path in log_dir.iterdir() if path.is_dir() and path.name.startswith(tuple(topics))
                ]
        return left

    def _end_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def close(self) -> None:
        self._end_reader()
        for writer in (*self.writers, self.loose):
            writer.close()


def _as_kafka_python_has_them(clients: Mapping[str, str]) -> dict[str, str]:
    names = {
        "ssl.ca.location": "ssl_cafile",
        "sasl.username": "sasl_plain_username",
        "sasl.password": "sasl_plain_password",
    }
    return {names.get(key, key.replace(".", "_")): value for key, value in clients.items()}


@contextmanager
def running(folder: Path, kinds: Sequence[Fault], *, ibp: str = "3.9", secure: bool = False) -> Iterator[Rounds]:
    settings = {"inter.broker.protocol.version": ibp}
    with FaultCluster(folder, config=settings, log_dir_count=2, secure=secure) as cluster:
        rounds = Rounds(cluster, random.Random(SEED), kinds)
        try:
            yield rounds
        finally:
            rounds.close()


def run_all(started: Rounds, count: int) -> None:
    print(f"\nKLAMM_FAULT_SEED={SEED}")
    try:
        for number in range(count):
            print(started.run(number), flush=True)
    finally:
        print(started.summary(), flush=True)


@pytest.mark.parametrize("ibp", IBPS)
def test_nothing_is_lost_whatever_fails(ibp: str, tmp_path: Path) -> None:
    with running(tmp_path, KINDS, ibp=ibp) as started:
        run_all(started, ROUNDS)


def test_nothing_is_lost_over_sasl_ssl(tmp_path: Path) -> None:
    with running(tmp_path, KILLING, secure=True) as started:
        run_all(started, SECURED_ROUNDS)
        for broker in started.cluster.running:
            assert "Failed authentication" not in started.cluster.server_log(broker)
