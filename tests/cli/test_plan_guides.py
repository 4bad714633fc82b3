"""The guides to add a broker, remove one and repair racks, carried out on brokers: their own commands, in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doc_pages import DOCS, fenced_blocks
from guest_cluster import GuestCluster
from guide_runner import Runner
from operated_cluster import Capture, Klamm, filled
from patience import wait_for

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 7: "a", 8: "a"}
"""The brokers that the guides name, with their racks."""
TOPIC = "orders"

Placed = list[list[int]]


@pytest.fixture(scope="module")
def brokers(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.num.partitions": "1",
    }
    folder = tmp_path_factory.mktemp("guides")
    with GuestCluster(
        zookeeper, tuple(RACKS), directory=folder, config=settings, racks=tuple(RACKS.values())
    ) as cluster:
        yield cluster


def only_the_new_ones_receive(before: Placed, after: Placed) -> bool:
    received = {broker for old, new in zip(before, after, strict=True) for broker in set(new) - set(old)}
    return received == {4, 5}


def broker_7_is_empty(before: Placed, after: Placed) -> bool:
    return any(7 in replicas for replicas in before) and not any(7 in replicas for replicas in after)


def racks_are_repaired(before: Placed, after: Placed) -> bool:
    """Every partition spans two racks, and those that did before are as they were."""

    def spans(one: list[int]) -> bool:
        return len({RACKS[broker] for broker in one}) == 2

    kept = all(old == new for old, new in zip(before, after, strict=True) if spans(old))
    return kept and all(map(spans, after)) and not all(map(spans, before))


@pytest.mark.parametrize(
    ("name", "assignment", "is_reached"),
    [
        ("add-a-broker", "1:2,2:3,3:7,7:2,8:3,1:3,8:2", only_the_new_ones_receive),
        ("remove-a-broker", "7:2,3:7,1:2,2:4,4:3,5:1,3:5", broker_7_is_empty),
        ("repair-racks", "1:4,4:3,2:5,7:2,8:3", racks_are_repaired),
    ],
)  # fmt: skip
def test_the_commands_of_a_guide_do_what_it_says(
    brokers: LocalCluster,
    capsys: Capture,
    tmp_path: Path,
    name: str,
    assignment: str,
    is_reached: Callable[[Placed, Placed], bool],
) -> None:
    page, runner = DOCS / "guides" / f"{name}.md", Runner(tmp_path, brokers.bootstrap_servers)
    klamm = Klamm(capsys, "--bootstrap-server", brokers.bootstrap_servers)
    filled(klamm, TOPIC, assignment, records=300)
    # A cluster in use has consumer groups. On another one the plan lock would make their topic, perhaps on broker 7.
    assert klamm("consume", TOPIC, "--group", "readers", "--from-beginning", "--max-messages", "1").code == 0
    before = klamm.replicas(TOPIC)
    try:
        shown = carried_out(page, runner, brokers)
        assert is_reached(before, klamm.replicas(TOPIC)), klamm.replicas(TOPIC)
        again = runner.at_terminal(without_file(commands(page)[0]))
        assert "Nothing has to be done" in again, again
        assert klamm("replicas", "verify", "--topic", TOPIC).code == 0
        for sentence in quoted(page):
            assert shape(sentence) in shape(f"{shown} {again}"), (sentence, shown)
    finally:
        assert klamm("topics", "delete", TOPIC, "--yes").code == 0
        # Brokers forget a topic before its deletion is done, and until then nobody can create it again.
        znodes = Klamm(capsys, "--zookeeper", brokers.zookeeper_connect)
        wait_for(lambda: TOPIC not in znodes("topics", "list").out)


def carried_out(page: Path, runner: Runner, brokers: LocalCluster) -> str:
    """Run the first command with each option that the text names, then all commands; return what a person sees."""
    log_dir = next(broker.log_dirs[0] for broker in brokers.status().brokers if broker.id == 3)
    for block in fenced_blocks(page, "toml"):
        # The guide's broker has its logs elsewhere.
        (runner.folder / "capacity.toml").write_text(block.replace("/data/a", log_dir))
    first, *_ = lines = commands(page)
    named = re.findall(r"`(--[a-z][^`\n]*)`", page.read_text("utf-8"))
    shown = []
    for line in (*(f"{first} {option}" for option in named), *lines):
        shown.append(runner.at_terminal(line))
        if "plan apply" in line:
            assert runner("klamm plan verify plan.json").returncode == 0, shown[-1]
    return "".join(shown)


def commands(page: Path) -> list[str]:
    return [line for block in fenced_blocks(page, "sh") for line in block.splitlines()]


def without_file(line: str) -> str:
    return line.removesuffix(" --out plan.json")


def quoted(page: Path) -> list[str]:
    """Return what the text, between its blocks, quotes of klamm's sentences."""
    prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    return re.findall(r'"([^"]+)"', prose)


def shape(text: str) -> str:
    """Return a text without its figures, units and lines."""
    one_line = re.sub(r"\d[\d.,]*(?<=\d)", "#", " ".join(text.split()))
    return re.sub(r"\b(move|change)s?\b", r"\1s", re.sub(r"\b[kMGT]?B\b", "B", one_line))
