"""Groups in ZooKeeper without any broker: commands show what is known and change what can be changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klamm_program import Ran, in_process
from znode_writer import znode_writer

Klamm = Callable[..., Ran]


@pytest.fixture
def klamm(zk_chroot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Klamm:
    """Runs a command on a ZooKeeper with two groups: one with neither members nor offsets, and a plain one."""
    monkeypatch.chdir(tmp_path)
    znodes = {"/consumers/mirror/offsets/orders/0": b"42", "/consumers/mirror/offsets/orders/x": b"?"}
    znodes |= {"/consumers/console-consumer-1/ids": b" "}
    with znode_writer(zk_chroot) as write:
        write(znodes, False)
    return lambda *words: in_process("groups", *words, "--zookeeper", zk_chroot, capture=capsys)


def test_a_group_of_a_thousand_partitions(klamm: Klamm, zk_chroot: str) -> None:
    """It needs more znodes than fit into one request."""
    with znode_writer(zk_chroot) as write:
        write({f"/consumers/wide/offsets/t{n % 4}/{n // 4}": b"%d" % n for n in range(1001)}, False)
    described = klamm("describe", "wide")
    assert (described.code, len(described.rows)) == (0, 1001)
    assert klamm("delete", "wide", "--yes").rows == [["wide", "zookeeper", "deleted", "-"]]
    assert klamm("describe", "wide", "--via", "zookeeper").code == 2


def test_they_are_listed_although_no_broker_answers(klamm: Klamm) -> None:
    listed = klamm("list", "--state")
    assert listed.rows == [["console-consumer-1", "Empty"], ["mirror", "Empty"]]
    assert (listed.code, listed.err.splitlines()[0].split(":")[:2]) == (3, ["error", " no broker is registered"])
    alone = klamm("list", "--via", "zookeeper")
    assert (alone.code, len(alone.rows), alone.err) == (0, 2, "")


def test_offsets_are_told_without_ends(klamm: Klamm) -> None:
    ran = klamm("describe", "mirror", "console-consumer-1", "-o", "json")
    assert ran.code == 0, ran.err
    assert [(row["group"], row["member_count"], len(row["partitions"])) for row in ran.json] == [
        ("console-consumer-1", 0, 0), ("mirror", 0, 1),
    ]  # fmt: skip
    (partition,) = ran.json[1]["partitions"]
    assert (partition["current_offset"], partition["log_end_offset"], partition["lag"]) == (42, None, None)
    assert partition["error"].startswith("no broker is registered")
    absent = klamm("describe", "absent", "mirror", "--state")
    assert (absent.code, [row[0] for row in absent.rows]) == (3, ["mirror"]), "a broker might know it"


def test_resets_that_need_no_log_are_done(klamm: Klamm, tmp_path: Path) -> None:
    exported = klamm("reset-offsets", "--group", "mirror", "--all-topics", "--to-current", "--export")
    assert (exported.code, exported.out) == (0, "orders,0,42\n"), exported.err
    done = klamm("reset-offsets", "--group", "mirror", "--all-topics", "--to-current", "--execute", "--yes",
                 "--rollback-file", tmp_path / "r.csv")  # fmt: skip
    assert (done.code, done.rows) == (0, [["mirror", "orders", "0", "42", "42", "reset", "-"]]), done.err
    refused = klamm("reset-offsets", "--group", "mirror", "--all-topics", "--to-earliest")
    assert (refused.code, refused.out) == (3, "")


def test_they_are_deleted(klamm: Klamm) -> None:
    assert klamm("delete", "mirror", "--dry-run").rows == [["mirror", "zookeeper", "would_be_deleted", "-"]]
    gone = klamm("delete", "mirror", "--yes")
    assert (gone.code, gone.rows) == (0, [["mirror", "zookeeper", "deleted", "-"]]), gone.err
    assert klamm("list", "--via", "zookeeper").rows == [["console-consumer-1"]]
    again = klamm("delete", "mirror", "--yes", "--via", "zookeeper")
    assert (again.code, again.err.splitlines()[0]) == (2, "error: consumer group 'mirror' does not exist")


@pytest.mark.parametrize("name", [".", "..", "a/b"])
def test_names_that_no_znode_can_have(klamm: Klamm, name: str) -> None:
    ran = klamm("describe", "--group", name, "--via", "zookeeper")
    assert (ran.code, ran.err.splitlines()[0]) == (2, f"error: consumer group '{name}' does not exist")
