"""A large request gets the answer that a small one gets, byte for byte, though other code decodes and answers it."""

from __future__ import annotations

import copy
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_logs import assert_no_fault
from grown_requests import Path as FieldPath
from grown_requests import growing, grown
from guest_cluster import GuestCluster
from wire_client import WireClient

from engine.admin.cluster.client_properties import load_properties
from engine.broker.handlers.registry import all_handlers
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.kafka.acls import type_code
from engine.kafka.client.jaas import parse_jaas_config
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from engine.kafka.protocol.declaration import request_class
from engine.kafka.protocol.large_arrays import LAZY_MIN
from engine.local.cluster import LocalCluster
from engine.local.security import properties_path
from engine.local.zookeeper import EmbeddedZooKeeper

ELEMENTS = LAZY_MIN + 50
LEFT_OUT = {
    ApiKey.CONTROLLED_SHUTDOWN: "it ends the broker",
    ApiKey.DESCRIBE_LOG_DIRS: "it tells what is free on the disk at that moment",
}
REFUSED = {ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA}
"""These would change what the broker answers later, so they come from a controller that is none any more."""
STALE: tuple[dict[str, Any], ...] = ({"controller_epoch": 0}, {"controller_epoch": 1, "broker_epoch": 0})
WAITS: dict[str, Any] = {"timeout_ms": 1000, "max_wait_ms": 0, "controller_epoch": 1, "acks": 1}
SPECS = {spec.key: spec for spec in all_handlers().values() if spec.key not in LEFT_OUT}


def arrays(key: ApiKey, version: int) -> Iterator[FieldPath]:
    """Yield the arrays in a request."""
    for path in growing(key, version):
        value = part(grown(key, version, path, 3, 0), path[:-1])
        if path[-1] and isinstance(getattr(value, path[-1]), list):
            yield path


def part(value: Any, path: FieldPath) -> Any:
    """Return the first element of the innermost array of a path."""
    for name in path:
        value = getattr(value, name)[0]
    return value


def requests(key: ApiKey, version: int) -> Iterator[tuple[str, Any]]:
    """Yield requests with one array grown: hollow elements, whole ones, then some twice and a topic that exists."""
    known = {field.name for field in request_class(key).wire_fields if field.is_in(version)}
    for stale in STALE if key in REFUSED else ({},):
        if known.issuperset(stale):
            yield from ((f"{grown} {stale}", request) for grown, request in grown_requests(key, version, WAITS | stale))


def grown_requests(key: ApiKey, version: int, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for path in arrays(key, version):
        yield ".".join(path), grown(key, version, path, ELEMENTS, 0, **values)
        if (key, path[-1]) == (ApiKey.OFFSET_COMMIT, "partitions"):
            # A small request gets two answers for a partition that it names twice, a large one gets one.
            continue
        filled = grown(key, version, path, 1, 0, **values)
        elements = getattr(part(filled, path[:-1]), path[-1])
        pattern = getattr(part(grown(key, version, (), 0, 0), path[:-1]), path[-1])[0]
        elements[:] = [renamed(copy.deepcopy(pattern), number) for number in range(ELEMENTS)]
        yield f"{'.'.join(path)}, filled", filled
        repeated = grown(key, version, path, ELEMENTS, 0, **values)
        elements = getattr(part(repeated, path[:-1]), path[-1])
        elements[7:7] = elements[300:310]
        elements += elements[::11]
        if key is not ApiKey.DELETE_TOPICS:
            name_what_is_there(elements)
        yield f"{'.'.join(path)}, repeated", repeated


def renamed(value: Any, number: int) -> Any:
    """Return a value with another number in each made-up name, at whatever depth."""
    if isinstance(value, str):
        return f"nowhere-{number}" if value.startswith("nowhere") else value
    if isinstance(value, list):
        # Other rights than those to what holds it.
        return [renamed(element, 3 * number + 5) for element in value]
    for name in getattr(value, "__slots__", ()):
        setattr(value, name, renamed(getattr(value, name), number))
    return value


def name_what_is_there(elements: list[Any]) -> None:
    if isinstance(elements[5], str):
        elements[5] = "there"
    for name in ("name", "topic", "resource_name", "topic_name"):
        if hasattr(elements[5], name):
            setattr(elements[5], name, "there")


class Peer:
    """A running broker, and how to connect to it."""

    def __init__(self, cluster: LocalCluster, user: str | None) -> None:
        self.broker, self._user, self.is_secured = cluster.broker(0), user, user is not None
        self.switch = self.broker.spec.directory / "nothing-is-large"

    def connect(self, user: str | None = None) -> WireClient:
        client, user = WireClient(self.broker.address), user or self._user
        if user is not None:
            config = load_properties(properties_path(self.broker.spec.directory.parent, user))
            context = ssl.create_default_context(cafile=config["ssl.truststore.location"])
            client.socket = context.wrap_socket(client.socket, server_hostname=self.broker.address.rpartition(":")[0])
            options = parse_jaas_config(config["sasl.jaas.config"]).options
            assert not client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
            token = f"\0{options['username']}\0{options['password']}".encode()
            assert not client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code
        return client


def answer(client: WireClient, request: Any, version: int) -> bytes:
    """Return the answer without its correlation id."""
    client.send(request, version)
    return client.read_frame()[4:]


@pytest.fixture(scope="module", params=["everything is allowed", "something is allowed"])
def peer(zookeeper: EmbeddedZooKeeper, request: pytest.FixtureRequest) -> Iterator[Peer]:
    """A broker with the topic ``there``; with an authorizer, alice may do everything to some of what requests name."""
    command = (sys.executable, str(Path(__file__).with_name("switched_broker.py")))
    is_secured = request.param == "something is allowed"
    secured: dict[str, Any] = {"secure": True, "sasl": "PLAIN", "acls": True} if is_secured else {}
    config = {"auto.create.topics.enable": "false"}
    with GuestCluster(zookeeper, 1, commands={0: command}, config=config, **secured) as cluster:
        peer = Peer(cluster, "alice" if is_secured else None)
        with peer.connect("admin" if is_secured else None) as client:
            there = CreatableTopic(name="there", num_partitions=2, replication_factor=1)
            answer = client.ask(CreateTopicsRequest(topics=[there], timeout_ms=20_000), 5)
            assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE]
            deadline_s = time.monotonic() + 20
            while client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0].error_code:
                assert time.monotonic() < deadline_s, "there is no coordinator"
                time.sleep(0.02)
            if is_secured:
                rules = [
                    AclCreation(
                        resource_type=type_code(kind), resource_name=name, resource_pattern_type=pattern,
                        principal="User:alice", host="*", operation=AclOperation.ALL, permission_type=3,
                    )
                    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
                    for name, pattern in (("nowhere-1", 4), ("nowhere-2", 4), ("there", 3))
                ]  # fmt: skip
                results = client.ask(CreateAclsRequest(creations=rules), 3).results
                assert {result.error_code for result in results} == {ErrorCode.NONE}
        yield peer
        assert_no_fault(peer.broker.logs_path)


@pytest.mark.parametrize("key", SPECS, ids=lambda key: key.name)
def test_a_large_request_is_answered_like_a_small_one(peer: Peer, key: ApiKey) -> None:
    spec = SPECS[key]
    with peer.connect() as client:
        # What a peer may do does not depend on the version.
        for version in {spec.max_version if peer.is_secured else spec.min_version, spec.max_version}:
            for sent, request in requests(key, version):
                large = answer(client, request, version)
                peer.switch.touch()
                try:
                    small = answer(client, request, version)
                finally:
                    peer.switch.unlink()
                assert large == small, (version, sent)
