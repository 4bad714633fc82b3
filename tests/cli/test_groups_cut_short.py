"""Group resets and deletions with a silent coordinator: interrupted, timed out; and with no cluster at all."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from event_loop import staged
from klamm_program import PROGRAM, Ran, environment, in_process
from scripted_brokers import SILENCE, scripted_cluster
from scripted_groups import ScriptedGroups

from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.kafka.protocol.apis.offset_commit import OffsetCommitRequest
from engine.kafka.protocol.declaration import Request

RESET = ("reset-offsets", "--group", "g1", "--all-topics", "--to-latest", "--execute", "--yes")


async def run(
    folder: Path, world: ScriptedGroups, words: tuple[str, ...], awaited: type[Request], *, is_interrupted: bool
) -> Ran:
    """Run the program until the coordinator has the change, which it does not answer."""
    (host, port), *_ = world.cluster.bootstrap
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "groups", *words, "--bootstrap-server", f"{host}:{port}",
        cwd=folder, env=environment(folder), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    if is_interrupted:
        while not world.cluster.brokers[1].requests(awaited):
            assert process.returncode is None
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


def play(scene: Callable[[ScriptedGroups], Awaitable[None]]) -> None:
    async def playing() -> None:
        async with asyncio.timeout(30), scripted_cluster(2) as brokers:
            world = ScriptedGroups(brokers, {})
            world.state, world.change_answers = "Empty", [SILENCE]
            world.offsets = {"g1": {("t", 0): 60}}
            await scene(world)

    asyncio.run(playing())


@staged(play)
async def test_an_interrupted_reset_says_how_to_go_back(world: ScriptedGroups, /, tmp_path: Path) -> None:
    ran = await run(tmp_path, world, (*RESET, "--rollback-file", "back.csv"), OffsetCommitRequest, is_interrupted=True)
    assert (ran.code, ran.out) == (130, ""), ran.err
    *_, error, hint = ran.err.splitlines()
    assert error == "error: interrupted"
    command = "klamm groups reset-offsets --group g1 --from-file back.csv --execute"
    assert hint.startswith(f"hint: some offsets may be set already; to go back: {command} --bootstrap-server ")
    assert (tmp_path / "back.csv").read_text() == "t,0,60\n", "it was there before the change was sent"


@staged(play)
async def test_a_reset_out_of_time_is_under_way(world: ScriptedGroups, /, tmp_path: Path) -> None:
    ran = await run(
        tmp_path, world, (*RESET, "--timeout", "2", "-o", "json"), OffsetCommitRequest, is_interrupted=False
    )
    assert (ran.code, ran.out) == (5, ""), ran.err
    error = json.loads(ran.err.splitlines()[-1])["error"]
    assert error["kind"] == "under_way"
    (saved,) = tmp_path.glob("offsets-*.csv")
    assert f"to go back: klamm groups reset-offsets --group g1 --from-file {saved} --execute" in error["hint"]


@staged(play)
async def test_an_interrupted_deletion_says_how_to_look(world: ScriptedGroups, /, tmp_path: Path) -> None:
    ran = await run(tmp_path, world, ("delete", "g1", "--yes"), DeleteGroupsRequest, is_interrupted=True)
    assert (ran.code, ran.out) == (130, "")
    assert "check with: klamm groups list" in ran.err


@pytest.mark.parametrize("words", [("list",), ("describe", "g"), ("delete", "g", "--yes"), RESET])
def test_without_a_cluster_it_is_code_3(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    ran = in_process("groups", *words, "--bootstrap-server", "127.0.0.1:1", capture=capsys)
    assert (ran.code, ran.out, "no broker can be reached: 127.0.0.1:1" in ran.err) == (3, "", True), ran.err


def test_without_zookeeper_it_is_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    ran = in_process("groups", "list", "--zookeeper", "127.0.0.1:1", "--timeout", "1", capture=capsys)
    assert (ran.code, ran.out, "ZooKeeper refuses connections" in ran.err) == (3, "", True), ran.err


def test_a_snapshot_knows_no_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.json").write_text("{}")
    ran = in_process("groups", "list", "--snapshot", tmp_path / "s.json", capture=capsys)
    complaint = f"error: a snapshot does not know this, only a live cluster: {tmp_path}/s.json"
    assert (ran.code, ran.err.splitlines()[0]) == (2, complaint)
