"""Each command's rights in ZooKeeper, with exactly these and without each, on Apache Kafka and with real logins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from apache_kafka import KAFKA_VERSION, ApacheKafkaBroker, SharedJvm, wait_until_all_know_each_other
from rights_story import SETTINGS
from znode_rights_story import ZNODE_CELLS, ZnodeCell, ZnodeStory, check_znodes, zookeeper_of_super_brokers

FIRST_PORT = 21330


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZnodeStory]:
    folder = tmp_path_factory.mktemp("rights")
    with ExitStack() as stack:
        server = stack.enter_context(zookeeper_of_super_brokers(tmp_path_factory.mktemp("zookeeper")))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={server.jaas('kafka')}")
            jvm = stack.enter_context(SharedJvm(KAFKA_VERSION))
        brokers = [
            stack.enter_context(
                ApacheKafkaBroker(
                    folder / f"broker-{broker_id}",
                    broker_id=broker_id,
                    host=server.server.host,
                    port=FIRST_PORT + broker_id,
                    zookeeper_connect=server.connect_string,
                    overrides=SETTINGS | {"zookeeper.set.acl": "true"},
                    shares_jvm=jvm,
                )
            )
            for broker_id in range(2)
        ]
        wait_until_all_know_each_other(brokers)
        yield ZnodeStory(folder, brokers[0].bootstrap, server)


@pytest.mark.parametrize("cell", ZNODE_CELLS, ids=str)
def test_a_command_works_with_its_rights_and_names_the_znode_that_it_may_not_use(
    cell: ZnodeCell,
    story: ZnodeStory,
    own_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_znodes(story, cell, capsys)
