"""Each command works with exactly its rights in ZooKeeper, on klamm's brokers.

That it names the one that it lacks is up to ZooKeeper alone: ``tests/interop`` asks that, on Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_program import BrokerProgram, settings
from patience import within
from rights_story import SETTINGS
from znode_rights_story import ZNODE_CELLS, ZnodeCell, ZnodeStory, check_znodes, zookeeper_of_super_brokers

from engine.local.probe import known_broker_ids

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZnodeStory]:
    folder = tmp_path_factory.mktemp("rights")
    with ExitStack() as stack:
        server = stack.enter_context(zookeeper_of_super_brokers(tmp_path_factory.mktemp("zookeeper")))
        host = server.server.host
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={server.jaas('kafka')}")
            for broker_id in range(2):
                own = folder / f"broker-{broker_id}"
                config = settings(own, host, server.connect_string) | {
                    "broker.id": str(broker_id),
                    "listeners": f"PLAINTEXT://{host}:{9092 + broker_id}",
                    "zookeeper.set.acl": "true",
                }
                stack.enter_context(BrokerProgram(own, SETTINGS | config)).wait_until_started()
        is_in_time = within(60)
        while len(known_broker_ids(host, 9092)) < 2:
            assert is_in_time(), "the brokers do not know each other"
        yield ZnodeStory(folder, f"{host}:9092", server)


@pytest.mark.parametrize("cell", [cell for cell in ZNODE_CELLS if cell.missing is None and cell.needs], ids=str)
def test_a_command_works_with_its_rights(
    cell: ZnodeCell, story: ZnodeStory, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some commands leave a file for the way back.
    monkeypatch.chdir(tmp_path)
    check_znodes(story, cell, capsys)
