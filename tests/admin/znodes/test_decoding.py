"""Znodes in words: whole recorded trees through their classes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from znode_trees import TREES

from cli.output.values import json_value
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.znodes.tree import Znode, checked_path, decode_znode, get_tree, get_znode, raw_text
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.operations import ZnodeStat

STAT = ZnodeStat(*range(11))
SCENES = sorted(path.stem for path in TREES.glob("*.jsonl"))


def znodes(scene: str) -> list[tuple[str, bytes]]:
    lines = map(json.loads, (TREES / f"{scene}.jsonl").read_text("utf-8").splitlines())
    return [(line["path"], (line["data"] or "").encode()) for line in lines]


@pytest.mark.parametrize("scene", SCENES)
def test_every_znode_with_data_has_a_class_that_understands_it(scene: str) -> None:
    for path, data in znodes(scene):
        decoded = decode_znode(path, data, STAT)
        assert decoded.complaint is None
        json_value(decoded.value)
        if data:
            assert decoded.kind is not None, path
            assert decoded.value not in (None, ""), path


def value(path: str, data: str) -> object:
    return decode_znode(path, data.encode(), STAT).value


def test_what_they_say() -> None:
    assert value("/controller_epoch", "7") == 7
    assert value("/config/changes/config_change_0000000001", '"t"') == {"entity": "topics/t"}
    assert value(
        "/brokers/topics/t/partitions/3/state", '{"leader":1,"isr":[1,2],"leader_epoch":5,"controller_epoch":3}'
    )
    moving = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
    assert value("/admin/reassign_partitions", moving) == [{"topic": "t", "partition": 0, "replicas": [1, 2]}]
    assert value("/consumers/g/offsets/t/0", "42") == 42
    assert value("/unknown", '{"a": 1}') == {"a": 1}
    assert value("/unknown", "text") == "text"
    assert decode_znode("/unknown", b"\xff\x00", STAT).value == "0xff00"


SCRAM = '{"version":1,"config":{"SCRAM-SHA-256":"salt=aSecr3t,stored_key=bSecr3t,server_key=cSecr3t,iterations=8192"}}'
BROKER = '{"version":1,"config":{"listener.name.a.ssl.key.password":"enc:x,y\\"Secr3t","log.cleaner.threads":"2"}}'


def test_secrets_are_not_shown() -> None:
    assert value("/config/users/alice", SCRAM) == {"SCRAM-SHA-256": "iterations=8192 [redacted]"}
    shown = {"listener.name.a.ssl.key.password": "[redacted]", "log.cleaner.threads": "2"}
    assert value("/config/brokers/0", BROKER) == shown


@pytest.mark.parametrize(("path", "stored"), [("/config/users/alice", SCRAM), ("/config/brokers/0", BROKER)])
def test_neither_is_the_raw_form_of_secrets_whole_or_damaged(path: str, stored: str) -> None:
    whole = raw_text(path, stored.encode()) or ""
    assert "Secr3t" not in whole and json.loads(whole)["version"] == 1
    assert ("iterations=8192" in whole) == path.startswith("/config/users")
    for length in range(1, len(stored)):
        znode = decode_znode(path, stored[:length].encode(), STAT)
        text = f"{znode.value} {znode.complaint}"
        assert znode.complaint is not None and "Secr3t" not in text and "enc:" not in text, stored[:length]
    assert raw_text(path, b"\xff" + stored.encode()) == "[redacted]"


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"version":1}', b"\xff\xfe"])
def test_what_cannot_be_understood_is_shown_with_the_complaint(data: bytes) -> None:
    decoded = decode_znode("/brokers/ids/1", data, STAT)
    assert decoded.complaint is not None
    assert "/brokers/ids/1" in decoded.complaint
    assert decoded.value


def walk(connect: str, path: str, depth: int | None = None) -> list[Znode]:
    async def walking() -> list[Znode]:
        async with await ZkClient.connect(connect, session_timeout_ms=10_000) as zk:
            return await get_tree(zk, path, depth_max=depth)

    return asyncio.run(walking())


def test_a_whole_tree_in_order(recorded: Callable[[str], str]) -> None:
    connect = recorded("secure")
    walked = walk(connect, "/")
    assert [z.path for z in walked] == sorted((path for path, _ in znodes("secure")), key=lambda path: path.split("/"))
    below = walk(connect, "/kafka-acl", 1)
    assert below[0].path == "/kafka-acl"
    assert {z.path.count("/") for z in below} == {1, 2}
    assert [z.path for z in walk(connect, "/kafka-acl/", 0)] == ["/kafka-acl"]


def test_paths_that_are_none(recorded: Callable[[str], str]) -> None:
    async def getting(path: str) -> None:
        async with await ZkClient.connect(recorded("secure"), session_timeout_ms=10_000) as zk:
            await get_znode(zk, path)

    with pytest.raises(NotFound):
        asyncio.run(getting("/nothing/there"))
    for bad in ("", "a", "//a", "/a//b"):
        if bad == "":
            assert checked_path(bad) == "/"
            continue
        with pytest.raises(BadRequest):
            checked_path(bad)
