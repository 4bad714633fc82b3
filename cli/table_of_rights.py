"""Which access rules each command needs: the lines of its help, and the page ``docs/reference/rights.md``.

``tests/support/stories/rights_story.py`` holds each row against a real authorizer, and ``znode_rights_story.py`` each
row about znodes against a real ZooKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from engine.common.acl import Requirement, ResourceType


class Without(Enum):
    """What a command does if the right is missing. The value is how a row of the table writes it."""

    REFUSED = ""
    """It ends with code 4, and says who lacks what."""
    HIDDEN = "?"
    """It shows the rest, and says what is hidden and why."""
    LEFT_OUT = "~"
    """Kafka leaves it out and does not say so, nor can klamm."""
    BESIDE = "!"
    """A figure beside the others needs it, or what one key of the dashboard shows; it says who lacks what."""


class _Remarked:
    """What a row of a table says beside the right."""

    __slots__ = ()
    remark: str
    """What it is for, or the options that need it; empty if there is nothing to say."""

    @property
    def options(self) -> tuple[str, ...]:
        """Each of these options needs it; none if it always is."""
        return tuple(re.findall(r"--[a-z-]+", self.remark))

    @property
    def part(self) -> str:
        """What it is for, without the options that need it."""
        return re.sub(r"(^|, )with --.*", "", self.remark)


@dataclass(frozen=True, slots=True)
class Need(_Remarked):
    """A right that a command needs."""

    right: Requirement
    without: Without
    remark: str

    @classmethod
    def of(cls, row: str) -> Need:
        """Read a row such as ``Describe Cluster?: the sizes``."""
        match = re.fullmatch(r"(\w+ \w+)([?~!]?)(?:: (.+))?", row)
        assert match is not None, row
        return cls(Requirement.of(match[1]), Without(match[2]), match[3] or "")

    def counts_with(self, given: Iterable[str]) -> bool:
        """Whether it is needed with these options, by their parameters' names."""
        return not self.options or any(option.lstrip("-").replace("-", "_") in given for option in self.options)

    def __str__(self) -> str:
        """The right in the words of ``klamm acls``."""
        word = self.right.resource_type.word.replace("-", " ")
        where = "the cluster" if self.right.resource_type is ResourceType.CLUSTER else f"the {word}s"
        return f"{self.right.operation.word} on {where}"

    @property
    def consequence(self) -> str:
        """The remark, and what becomes of a command without the right where it is not refused."""
        effect = {
            Without.REFUSED: "",
            Without.HIDDEN: "hidden without it",
            Without.LEFT_OUT: "silently left out without it",
            Without.BESIDE: "not shown without it",
        }[self.without]
        return ", ".join(filter(None, (self.remark, effect)))


@dataclass(frozen=True, slots=True)
class ZnodeNeed(_Remarked):
    """A right that a command needs on a znode and all below it, where Kafka's tools do not give it to everybody."""

    is_change: bool
    """To write, create and delete there; else to read."""
    path: str
    without: Without
    remark: str

    @classmethod
    def of(cls, row: str) -> ZnodeNeed:
        """Read a row such as ``read /config/users?: quotas of users``."""
        match = re.fullmatch(r"(read|change) (/[a-z_/-]*)(\??)(?:: (.+))?", row)
        assert match is not None, row
        return cls(match[1] == "change", match[2], Without(match[3]), match[4] or "")

    def __str__(self) -> str:
        return f"{'change' if self.is_change else 'read'} {self.path}"

    @property
    def consequence(self) -> str:
        """The remark, and what becomes of a command without the right where it is not refused."""
        return ", ".join(filter(None, (self.remark, "hidden without it" * (self.without is Without.HIDDEN))))


def znode_needs_of(words: str) -> tuple[ZnodeNeed, ...]:
    """Return what the command with these words needs in ZooKeeper; nothing if it reads what everybody may read."""
    return tuple(map(ZnodeNeed.of, ZNODES.get(words, ())))


def needs_of(words: str) -> tuple[Need, ...]:
    """Return what the command with these words needs; nothing if it asks no broker."""
    return tuple(map(Need.of, RIGHTS.get(words, ())))


# Log dirs show topics that lists lack, so these commands know what is hidden; without Describe Cluster they do not.
_SEEN = ("Describe Topic?", "DescribeConfigs Topic?: settings", "DescribeConfigs Cluster?: settings of brokers")
_WHOLE = (*_SEEN, "Describe Cluster")
_CHANGE = ("Describe Topic", "Alter Cluster")
_NAMED = "Describe Topic: of a topic that you name; others are hidden without it"
_NAMED_GROUP = "Describe Group: of a group that you name; others are hidden without it"
_GROUP_NAMES = "Describe Cluster?: names of hidden groups and topics"
_WAITS = "Read Topic!: how long records have waited"
_NAMES = "Describe Cluster?: names of hidden topics"
_MATCHES = "Describe Cluster?: names of hidden topics that a pattern matches"
_READ_ALL = ("Read Topic?", _NAMES)
_ELECT = (_NAMED, "Alter Cluster")
_THROTTLE = ("AlterConfigs Topic: with --throttle", "AlterConfigs Cluster: with --throttle")
_LOCK = "klamm-plan-lock, the lock of plans"
_BESIDE = f"Describe Group?: {_LOCK}"
_RUN = (*_CHANGE, f"Read Group: {_LOCK}", *_THROTTLE)

RIGHTS: Mapping[str, tuple[str, ...]] = {
    "top": (
        *(*_SEEN, "Describe Cluster?: moves, sizes", "Describe Group?: lag"),
        f"{_WAITS}; the record that a group reads next, at enter on an unhealthy partition of it",
    ),
    "exporter": (*_SEEN, "Describe Cluster?: moves, sizes", "Describe Group?: lag", _WAITS),
    "topics list": ("Describe Topic?", "Describe Cluster?: sizes, names of hidden topics"),
    "topics describe": (_NAMED, "DescribeConfigs Topic?: settings", "Describe Cluster?: moves under way"),
    "topics create": ("Create Topic",),
    "topics alter": ("Alter Topic", f"{_BESIDE}, with --partitions"),
    "topics delete": ("Delete Topic", _BESIDE, _MATCHES),
    "configs describe": (
        "DescribeConfigs Topic: with --topic",
        "Describe Topic?: with --entity-type",
        "DescribeConfigs Topic?: with --entity-type",
        "Describe Cluster?: names of hidden topics, with --entity-type",
        "DescribeConfigs Cluster: with --broker, --client or --user",
        "Describe Cluster: with --user",
    ),
    "configs alter": ("AlterConfigs Topic: with --topic", "AlterConfigs Cluster: with --broker, --client or --user"),
    "quotas list": ("DescribeConfigs Cluster",),
    "quotas describe": ("DescribeConfigs Cluster",),
    "quotas usage": ("DescribeConfigs Cluster",),
    "quotas set": ("AlterConfigs Cluster",),
    "quotas remove": ("AlterConfigs Cluster",),
    "elect preferred": _ELECT,
    "elect unclean": _ELECT,
    "reassign generate": ("Describe Topic",),
    "reassign execute": (*_CHANGE, *_THROTTLE, _BESIDE),
    "reassign verify": ("Describe Topic", "Describe Cluster"),
    "reassign cancel": ("Alter Cluster",),
    "reassign list": ("Describe Cluster",),
    "plan rebalance": _WHOLE,
    "plan decommission": _WHOLE,
    "plan replace": _WHOLE,
    "plan expand": _WHOLE,
    "plan racks": _WHOLE,
    "plan factor": _WHOLE,
    "plan move": _WHOLE,
    "plan leaders": _WHOLE,
    "plan log-dirs": _WHOLE,
    "plan check": ("Describe Topic", *_WHOLE[1:]),
    "plan status": ("Describe Topic", "Describe Cluster", f"Describe Group: {_LOCK}"),
    "plan verify": ("Describe Topic", "Describe Cluster", f"Describe Group: {_LOCK}"),
    "plan apply": _RUN,
    "plan resume": _RUN,
    "plan rollback": _RUN,
    "groups list": ("Describe Cluster?: groups that you may not describe",),
    "groups describe": (_NAMED_GROUP, _GROUP_NAMES, "Describe Topic?: offsets and lag"),
    "groups reset-offsets": ("Read Group", "Read Topic"),
    "groups delete-offsets": ("Delete Group", "Read Topic"),
    "groups delete": ("Delete Group",),
    "acls list": ("Describe Cluster",),
    "acls add": ("Alter Cluster",),
    "acls remove": ("Alter Cluster",),
    "acls explain": ("Describe Cluster", "DescribeConfigs Cluster?: whether there are super users"),
    "acls lint": ("Describe Cluster",),
    "acls export": ("Describe Cluster",),
    "acls diff": ("Describe Cluster",),
    "acls apply": ("Alter Cluster",),
    "users list": ("Describe Cluster",),
    "users set": ("Alter Cluster",),
    "users remove": ("Alter Cluster",),
    "transactions list": ("Describe TransactionalId~",),
    "transactions describe": ("Describe TransactionalId", "Describe Topic~: its partitions"),
    "transactions producers": ("Read Topic",),
    "transactions find-hanging": _READ_ALL,
    "transactions abort": ("Read Topic", "Alter Cluster"),
    "transactions force-terminate": ("Write TransactionalId",),
    "tokens list": ("Describe DelegationToken~: those of others",),
    "tokens create": ("CreateTokens User: with --owner-principal",),
    "tokens renew": (),
    "tokens expire": (),
    "lag": (_NAMED_GROUP, _GROUP_NAMES, "Describe Topic?: offsets and lag", _WAITS),
    "replicas verify": _READ_ALL,
    "brokers list": (),
    "brokers describe": ("Describe Topic?", "Describe Cluster?: log dirs", "DescribeConfigs Cluster?: settings"),
    "brokers log-dirs": ("Describe Cluster",),
    "brokers metrics": ("DescribeConfigs Cluster?: where a broker of klamm serves its metrics",),
    "brokers restart-order": (*_SEEN, "Describe Cluster?: moves under way"),
    "brokers demote": ("Describe Topic?", "Alter Cluster", _BESIDE),
    "brokers restore": (*_CHANGE, _BESIDE),
    "offsets": (_NAMED, _NAMES),
    "records delete": ("Delete Topic",),
    "cluster describe": ("Describe Topic?", _NAMES),
    "cluster health": (*_SEEN, "Describe Cluster?: moves under way, log dirs"),
    "cluster load": ("Describe Topic?", "Describe Cluster?: sizes", "DescribeConfigs Cluster?: with --rates"),
    "cluster snapshot": _WHOLE,
    "produce": ("Write Topic", "Write TransactionalId: with --transactional-id"),
    "consume": ("Read Topic", "Read Group: with --group", _MATCHES),
    "perf producer": ("Write Topic", "Write TransactionalId: with --transactional-id"),
    "perf consumer": ("Read Topic", "Read Group"),
    "perf suite": (
        *("Create Topic", "Write Topic", "Read Topic", "Delete Topic: to leave no topic behind"),
        "Describe Cluster?: room on disks",
    ),
    "state-changes check": ("Describe Topic?",),
    "spark jobs": ("Describe Topic?",),
    "spark commit": ("Read Group", "Read Topic"),
    "spark lag": ("Describe Group~", "Describe Topic~", f"{_WAITS}, with --time-lag"),
    "spark verify": ("Read Topic",),
    "doctor": (),
    "zk tree": (),
    "zk get": (),
    "zk secure": (),
    "zk open": (),
}
"""The rules of Kafka's authorizer that a command needs when it asks brokers. A right that another one implies is not
listed beside it. For ``--zookeeper`` alone the access lists of znodes count instead."""

_SET_TOPIC = ("change /config/topics: with --topic", "change /config/brokers: with --broker")
_SET_CLIENT = ("change /config/clients: with --client", "change /config/users: with --user")
_TELL = "change /config/changes"
_ACLS = ("change /kafka-acl", "change /kafka-acl-changes")
_BROKERS = "read /config/brokers?: settings of brokers"
_THROTTLES = "read /config/brokers?: throttles that are left"
_RUN_BY_ZNODE = (_BROKERS, "change /admin", "change /klamm: the lock of plans")

ZNODES: Mapping[str, tuple[str, ...]] = {
    "topics create": ("change /config/topics", "change /brokers/topics"),
    "topics alter": ("change /brokers/topics",),
    "topics delete": ("change /admin/delete_topics",),
    "configs describe": ("read /config/brokers: with --broker", "read /config/users: with --user"),
    "configs alter": (*_SET_TOPIC, *_SET_CLIENT, _TELL),
    "quotas list": ("read /config/users?: quotas of users",),
    "quotas describe": ("read /config/users: with --user",),
    "quotas usage": ("read /config/users?: quotas of users",),
    "quotas set": (*_SET_CLIENT, _TELL),
    "quotas remove": (*_SET_CLIENT, _TELL),
    "elect preferred": ("change /admin",),
    "reassign execute": ("change /admin",),
    "reassign cancel": (_THROTTLES,),
    "plan rebalance": (_BROKERS,),
    "plan decommission": (_BROKERS,),
    "plan replace": (_BROKERS,),
    "plan expand": (_BROKERS,),
    "plan racks": (_BROKERS,),
    "plan factor": (_BROKERS,),
    "plan move": (_BROKERS,),
    "plan leaders": (_BROKERS,),
    "plan log-dirs": (_BROKERS,),
    "plan check": (_BROKERS,),
    "plan verify": (_THROTTLES,),
    "plan apply": _RUN_BY_ZNODE,
    "plan resume": _RUN_BY_ZNODE,
    "plan rollback": _RUN_BY_ZNODE,
    "brokers describe": (_BROKERS,),
    "brokers demote": ("change /admin",),
    "brokers restore": ("change /admin",),
    "cluster health": (_BROKERS,),
    "cluster snapshot": (_BROKERS,),
    "perf suite": ("change /config/topics", "change /brokers/topics", "change /admin/delete_topics"),
    "acls add": _ACLS,
    "acls remove": _ACLS,
    "acls apply": _ACLS,
    "users list": ("read /config/users",),
    "users set": ("change /config/users", _TELL),
    "users remove": ("change /config/users", _TELL),
}
"""What a command needs in a ZooKeeper that Kafka's tools have closed, if it asks only that. Other commands read what
everybody may read there."""
