"""Commands that ask ZooKeeper alone, with exactly the rights of ``cli.table_of_rights.ZNODES``, and without each.

Every cell logs in to ZooKeeper as a user of its own, whom the access lists name. The brokers are ZooKeeper's super
users, so that they go on whatever the lists say, and use what a cell makes.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from klamm_program import Ran, in_process
from rights_story import CASES, RightsStory, hidden
from secured_zookeeper import SecuredZooKeeper, secured_zookeeper

from cli.table_of_rights import ZNODES, Without, ZnodeNeed, znode_needs_of
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NoNode
from engine.kafka.zk.operations import Acl
from engine.kafka.zk.security import ZkSecurity, zk_security

PASSWORD = "zk-cell-Secr3t"
_READ, _CHANGE = 1, 15
_MORE_WORDS = dict.fromkeys(("plan decommission", "plan replace", "plan move"), "--topic {t}")
"""Every topic can be seen here, also those that the case's plan could not do anything about."""
_MAKES_TOPICS = ("topics create", "perf suite")
_LEAVES_TRACES = ("reassign cancel", "plan apply", "plan resume", "plan rollback")
"""Commands that change something though settings are hidden from them, or note in a journal that they were refused."""
_FLEETING = ("/config/changes/", "/isr_change_notification/", "/log_dir_event_notification/")


@dataclass(frozen=True)
class ZnodeCell:
    """A case of ``rights_story`` with all rights that it needs in ZooKeeper, or without one of them."""

    case: str
    missing: ZnodeNeed | None = None

    @property
    def command(self) -> str:
        return self.case.partition(" --")[0]

    @property
    def own(self) -> str:
        """What is in the names of all that belongs to the case. What leaves traces without a right has its own."""
        leaves_traces = self.missing is not None and self.command in _LEAVES_TRACES
        return self.user if leaves_traces or self.writes_before else ZnodeCell(self.case).user

    @property
    def user(self) -> str:
        lacks = "" if self.missing is None else f" no {self.missing}".replace("/", "-")
        return f"{self.case}{lacks}".replace(" --", "-").replace(" ", "-")

    @property
    def writes_before(self) -> bool:
        """Whether its command has written something when it misses the right. All but topics take one multi."""
        return self.missing is not None and self.command in _MAKES_TOPICS and self.missing.path != "/config/topics"

    def __str__(self) -> str:
        return self.user

    @property
    def needs(self) -> list[ZnodeNeed]:
        words = CASES[self.case].words.split()
        return [
            need
            for need in znode_needs_of(self.command)
            if not need.options or any(option in words for option in need.options)
        ]


ZNODE_CELLS = [
    cell
    for case, asked in CASES.items()
    if asked.brokers <= 2 and not asked.runs_spark and not asked.hangs
    for cell in (*(ZnodeCell(case, need) for need in ZnodeCell(case).needs), ZnodeCell(case))
]
"""All that lack something come before the one that may do it. A command without a row needs nothing."""


class ZnodeStory(RightsStory):
    """The running cluster, as its super user and as the users of the cells see it."""

    def __init__(self, folder: Path, admin: str, server: SecuredZooKeeper) -> None:
        self.folder, self.admin, self.server = folder, admin, server
        self._prepared = set()
        asyncio.run(self._close_all())

    async def _close_all(self) -> None:
        """Give every znode the list that Kafka gives it: it leaves the root as it is. Plans find their folder."""
        async with await ZkClient.connect(self.server.connect_string, security=self._security) as client:
            await client.ensure_path("/klamm")
            roots = [f"/{name}" for name in await client.children("/") if name != "zookeeper"]
            await _set(client, {path: _closed(path) for path in ["/", *await _below(client, roots)]})

    @property
    def _security(self) -> ZkSecurity:
        return zk_security({}, {}, self.server.jaas("kafka"))

    def run_through_zookeeper(self, cell: ZnodeCell, capture: pytest.CaptureFixture[str]) -> Ran:
        """Grant the cell its rights, and run the command as its user."""
        asyncio.run(self._grant(cell))
        case = CASES[cell.case]
        said = f"{case.words} {_MORE_WORDS.get(cell.command, '')}".format(**self.names(cell))
        words = [*cell.command.split(), *said.split()]
        config = self.folder / f"{cell.user}.properties"
        config.write_text(f"klamm.zookeeper.digest={cell.user}:{PASSWORD}\n")
        where = ("--zookeeper", self.server.connect_string, "--command-config", config, "-o", "json")
        return in_process(*words, *where, capture=capture, stdin=case.stdin)

    async def _grant(self, cell: ZnodeCell) -> None:
        """Give the cell's user its rights on what is there now. Nobody else's list names that user."""
        needs = [need for need in cell.needs if need != cell.missing]
        digest = base64.b64encode(hashlib.sha1(f"{cell.user}:{PASSWORD}".encode()).digest()).decode()

        def entry(path: str) -> Acl:
            own = [need for need in needs if f"{path}/".startswith(f"{need.path}/")]
            rights = max(_CHANGE if need.is_change else _READ for need in own)
            return Acl(rights, "digest", f"{cell.user}:{digest}")

        async with await ZkClient.connect(self.server.connect_string, security=self._security) as client:
            paths = await _below(client, {need.path for need in needs})
            await _set(client, {path: [*_closed(path), entry(path)] for path in paths})


def _closed(path: str) -> list[Acl]:
    """Return the list that Kafka gives a znode."""
    return [Acl(31, "sasl", "kafka"), *(acl for acl in AclPolicy(is_secure=True).acl(path) if acl.scheme == "world")]


async def _set(client: ZkClient, lists: Mapping[str, list[Acl]]) -> None:
    answers = await client.set_acl_many(lists.items())
    # Some are gone by now.
    assert not [answer for answer in answers if isinstance(answer, Exception) and not isinstance(answer, NoNode)]


async def _below(client: ZkClient, roots: Iterable[str]) -> list[str]:
    """Return the paths of these znodes and of all below them, but for those that only exist for a moment."""
    paths, level = [], list(roots)
    while level:
        children = await client.children_many(level)
        parents = [
            (path, names) for path, names in zip(level, children, strict=True) if not isinstance(names, Exception)
        ]
        paths += [path for path, _ in parents]
        level = [f"{path}/{name}" for path, names in parents for name in names]
        level = [path for path in level if not path.startswith(_FLEETING)]
    return paths


@contextmanager
def zookeeper_of_super_brokers(folder: Path) -> Iterator[SecuredZooKeeper]:
    """Start a ZooKeeper to which ``kafka`` is a super user."""
    with secured_zookeeper(folder, settings={"superUser": "kafka"}, has_tls=False) as server:
        yield server


def check_znodes(story: ZnodeStory, cell: ZnodeCell, capture: pytest.CaptureFixture[str]) -> None:
    """Run a cell. With all rights the command works; without one it names the znode, as the table says."""
    story.prepare(cell, capture)
    ran, missing = story.run_through_zookeeper(cell, capture), cell.missing
    resources = [right["resource"] for right in hidden(ran) if right["resource"].startswith("znode:")]
    if cell.command not in ZNODES:
        assert (resources, "ZooKeeper does not allow" in ran.err + ran.out) == ([], False), ran.err
    elif missing is None:
        assert (ran.code, resources) == (CASES[cell.case].code, []), ran.err
    elif missing.without is Without.HIDDEN:
        assert (ran.code, resources) == (CASES[cell.case].code, [f"znode:{missing.path}"]), ran.err
        if ran.out.startswith("{") and "klamm" not in ran.json:
            assert {"resource": resources[0], "operation": "read"} in ran.json["hidden"], (
                "an object says it, a plan is a file"
            )
    else:
        assert (ran.code, ran.error["kind"]) == (4, "authorization"), ran.err
        assert f"ZooKeeper does not allow digest:{cell.user} to do this: {missing.path}" in ran.error["message"]
        assert "--jaas-config" in ran.error["hint"], ran.err
        # Else it would look as if nothing had changed.
        assert ("it wrote /" in ran.error["hint"]) == cell.writes_before, ran.err
