"""An open cluster: ZooKeeper and brokers, each connected when first needed; or a snapshot.

Each noun has one module, usually its ``access``, that chooses by ``source`` and ``changes_by`` how to read and change
the cluster.

async with Cluster(target, observe=print) as cluster:
    wire = await cluster.wire()
    zk = await cluster.zookeeper()
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from engine.admin.cluster.errors import (
    AdminError,
    BadRequest,
    FailureKind,
    MixedClusters,
    Refused,
    Unreachable,
    ZnodeForbidden,
    ZooKeeperUnreachable,
)
from engine.admin.cluster.remedies import NAME_ZOOKEEPER, Give, Operation, Parameter, Phrase, Words
from engine.admin.cluster.rights import LOG_IN_AS_BROKERS, NOT_TOLD, Right, ZnodeRight, asked_for
from engine.admin.cluster.settings_silence import SettingsSilence
from engine.admin.cluster.target import ClusterTarget, Side, Source
from engine.admin.cluster.waits import Accepted, Complain, Observer, OnRead, Waits, ignore_line, ignore_progress
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.common.model import address_text
from engine.common.topic_names import invalid_topic_name

if TYPE_CHECKING:
    from engine.admin.cluster.wire import WireCluster
    from engine.common.acl import Requirement
    from engine.common.snapshot import ClusterSnapshot
    from engine.kafka.zk.client import ZkClient


_ZNODES_OF_A_CLUSTER = frozenset({"brokers", "cluster", "config", "consumers", "kafka-acl"})
"""One of them is where a cluster is, where settings wait for its first broker, or where only old groups are left."""

_COMPARING_S, _COMPARING_SHARE = 2.0, 0.1
"""How long a change may wait for the cluster's id in ZooKeeper."""

_SHOWN_BY = {
    "/admin/delete_topics": Operation.LIST_TOPICS,
    "/admin/preferred_replica_election": Operation.DESCRIBE_TOPICS,
    "/admin/reassign_partitions": Operation.LIST_REASSIGNMENTS,
    "/brokers/topics": Operation.LIST_TOPICS,
    "/config": Operation.DESCRIBE_CONFIGS,
    "/consumers": Operation.LIST_GROUPS,
}
"""What shows whether a znode at or below a path was written."""


def _refused_znode(error: BaseException) -> str | None:
    """Return the path of the znode whose access list refused something, if that is what an error says."""
    from engine.kafka.zk.errors import MultiFailed, NoAuth

    if isinstance(error, BaseExceptionGroup):
        return next((path for exception in error.exceptions if (path := _refused_znode(exception)) is not None), None)
    refusal = error.error if isinstance(error, MultiFailed) else error
    return refusal.path if isinstance(refusal, NoAuth) else None


def _shown_by(path: str) -> Operation:
    return next((look for start, look in _SHOWN_BY.items() if path.startswith(start)), Operation.LIST_ZNODES)


class Cluster:
    """An open cluster, for the length of one operation. Use it from one event loop."""

    def __init__(
        self,
        target: ClusterTarget,
        *,
        observe: Observer = ignore_line,
        accepted: Accepted = ignore_line,
        complain: Complain = ignore_line,
        on_read: OnRead = ignore_progress,
        timeout_s: float = 30.0,
        settings: SettingsSilence | None = None,
        is_dry_run: bool = False,
        asks_only_brokers: bool = False,
        needs: Sequence[Requirement] = (),
        essential: Sequence[Requirement] = (),
        expects_znodes: bool = False,
    ) -> None:
        """Make a cluster with nothing open yet.

        Args:
            needs: the rights that the caller's whole work needs. Where one implies a right that was missing, it is
                the one to ask for.
            essential: those of them without which the work is refused. Without the others a part of it is hidden.
            settings: what an earlier cluster of the same command has found out about ZooKeeper, and brokers that wait
                for it.
            is_dry_run: a change is only tried; later waits are shorter than if it had been sent.
            asks_only_brokers: lists come from brokers, even if ZooKeeper is named too.
            expects_znodes: a ZooKeeper without a cluster is an error: no topics are not the answer there.
        """
        self.target = target
        self._expects_znodes = expects_znodes
        self._accepted = accepted
        self.complain = complain
        self.observe = observe
        self.on_read = on_read
        self.timeout_s = timeout_s
        self.waits = Waits()
        self.is_dry_run = is_dry_run
        self._lists_by_wire = asks_only_brokers or target.source is Source.WIRE
        self._settings = settings or SettingsSilence()
        self._zk: ZkClient | None = None
        self._has_sent = False
        self.needs, self._essential = needs, essential
        self._denied: dict[Right, None] = {}
        self._hidden_znodes: dict[ZnodeRight, None] = {}
        self._wire: WireCluster | None = None
        self._comparing = asyncio.Lock()
        self._id_in_zookeeper: str | None = None
        """Empty: there is none, or it could not be read. None: it was not read yet."""
        self.may_lack_unseen = False
        """A list that was read may lack what this principal may not see, and brokers do not say whether it does."""

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.explain(error)
            if isinstance(error, AdminError) and error.topics:
                if (refusal := await self.hidden(error.topics)) is not None:
                    raise refusal from error
                if self._hides_matches(error.topics):
                    error.message = Phrase(error.message, f", or it is hidden from {self.principal or 'this login'}")
            refused = None if error is None else _refused_znode(error)
            if refused is not None and self._zk is not None:
                raise await self._forbidden(self._zk, refused) from error
        finally:
            await self.close()

    async def _forbidden(self, zk: ZkClient, full_path: str) -> ZnodeForbidden:
        """Return the error for a znode that ZooKeeper does not let this session read or change."""
        from engine.kafka.zk.errors import NoNode, ZooKeeperError
        from engine.kafka.zk.operations import acl_texts

        path = full_path.removeprefix(zk.chroot) or "/"
        acl: tuple[str, ...] = ()
        try:
            try:
                acl = acl_texts((await zk.get_acl(path))[0])
            except NoNode:
                # What was to be created needs a right on its parent.
                path = path.rpartition("/")[0] or "/"
                acl = acl_texts((await zk.get_acl(path))[0])
        except ZooKeeperError:
            # Nor may this session see who is allowed.
            acl = ()
        hint = LOG_IN_AS_BROKERS
        if acl:
            whom = f"its access list is {', '.join(acl)}; log in as an identity that it names"
            hint = Phrase(whom, ", by a JAAS section Client: ", Give(Parameter.JAAS_CONFIG))
        if zk.written:
            # A change may take several writes. A setting and its notice to brokers are one.
            begun = ", ".join(dict.fromkeys(zk.written))
            hint = Phrase(hint, f"; it wrote {begun} before, so look: ", _shown_by(zk.written[0]))
        return ZnodeForbidden(f"ZooKeeper does not allow {self.zookeeper_identity} to do this", where=path, hint=hint)

    async def hidden(self, topics: Sequence[str]) -> Refused | None:
        """Return a refusal if one of these topics, which a list lacks, may be hidden: lists omit those.

        A text that is no topic's name is a pattern: ``log_dirs.describing.hidden_matches`` finds what it matches.
        """
        asked = [text for text in topics if invalid_topic_name(text) is None]
        if not asked or self._wire is None:
            return None
        with suppress(AdminError):
            await self._wire.metadata(asked)
        # Whether a name is free is tried with a creation: who may not create a topic may see it all the same.
        names = {
            right.name
            for right in self._denied
            if right.resource_type is ResourceType.TOPIC and right.operation is not AclOperation.CREATE
        }
        topic = next((topic for topic in topics if topic in names), None)
        if topic is None:
            return None
        refusal = Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, where=f"topic {topic}")
        self.explain(refusal)
        return refusal

    async def lacking(self, operation: AclOperation, topics: Sequence[str]) -> dict[str, Refused]:
        """Return a refusal for each of these topics with which this principal may not do that, if brokers say so.

        For dry runs: the brokers refuse the change itself.
        """
        if self.changes_by is not Side.WIRE or not topics:
            return {}
        answers = (await (await self.wire()).metadata(topics, with_rights=True)).topics
        rights = [
            Right(operation, ResourceType.TOPIC, topic.name or "")
            for topic in answers
            if topic.topic_authorized_operations != NOT_TOLD and not topic.topic_authorized_operations >> operation & 1
        ]
        return self.refusals_for_want_of(rights)

    def refusals_for_want_of(self, rights: Sequence[Right]) -> dict[str, Refused]:
        """Note that these rights are missing; return the refusal for each, by the name of its resource."""
        self.note_denied(rights)
        return {
            right.name: Refused(right.code, where=right.resource_words).for_want_of(right, self.principal)
            for right in rights
        }

    async def note_lacking(self) -> None:
        """Note that this principal may not alter the cluster, if the command is sure to need that and brokers say so.

        For dry runs that found something to change, like ``lacking``: the change itself sends nothing otherwise.
        """
        needed = Right(AclOperation.ALTER, ResourceType.CLUSTER)
        if self.changes_by is Side.WIRE and needed.kind in self._essential:
            await self._may(needed)

    async def hides_groups(self) -> bool:
        """Return whether lists of groups may lack some: who may describe the cluster is shown all, others not."""
        if not self.is_somebody:
            return False
        self.may_lack_unseen = not await self._may(Right(AclOperation.DESCRIBE, ResourceType.CLUSTER))
        return self.may_lack_unseen

    async def _may(self, right: Right) -> bool | None:
        """Return whether this principal has a right on the cluster, and note it if not; None: brokers do not say."""
        from engine.kafka.protocol.apis.describe_cluster import DescribeClusterRequest

        with suppress(AdminError):
            # Who may not even describe the cluster is told of no right; the others imply that one.
            request = DescribeClusterRequest(include_cluster_authorized_operations=True)
            allowed = (await (await self.wire()).call_any(request)).cluster_authorized_operations
            if allowed != NOT_TOLD:
                is_allowed = bool(allowed >> right.operation & 1)
                self.note_denied(() if is_allowed else [right])
                return is_allowed
        return None

    def _hides_matches(self, topics: Sequence[str]) -> bool:
        """Whether hidden topics may match a pattern among these: who may not describe the cluster cannot know."""
        cannot_know = Right(AclOperation.DESCRIBE, ResourceType.CLUSTER) in self._denied
        return self.may_hide_topics and cannot_know and any(invalid_topic_name(text) is not None for text in topics)

    @property
    def principal(self) -> str | None:
        """The principal that brokers see, by their default rules; None if only they know it."""
        named = self.target.client_properties.security.principal
        return named if self._wire is None else self._wire.principal_by(named)

    @property
    def is_somebody(self) -> bool:
        """Whether rules may hide something from the principal: not from one who is nobody in particular."""
        from engine.kafka.client.security import ANONYMOUS

        return self.principal != ANONYMOUS

    @property
    def may_hide_topics(self) -> bool:
        """Whether lists may lack topics: those that the principal may not see."""
        return self._lists_by_wire and self.is_somebody

    @property
    def zookeeper_identity(self) -> str:
        return " and ".join(self.target.zookeeper_security.identities) or "a session without a login"

    def note_hidden_znode(self, full_path: str) -> None:
        """Note that this session may not read a znode, with its chroot; the caller shows the rest."""
        chroot = "" if self._zk is None else self._zk.chroot
        self._hidden_znodes[ZnodeRight(full_path.removeprefix(chroot) or "/")] = None

    @property
    def hidden_znodes(self) -> list[ZnodeRight]:
        """The znodes that could not be read so far."""
        return list(self._hidden_znodes)

    def note_denied(self, rights: Iterable[Right]) -> None:
        """Note rights that were missing when klamm asked a broker over a separate connection."""
        self._denied.update(dict.fromkeys(rights))

    def forget_denied(self) -> None:
        """Forget the missing rights, so that one granted since no longer counts."""
        self._denied.clear()

    @property
    def denied(self) -> list[Right]:
        """The rights that were missing so far."""
        return list(self._denied)

    def explain(self, error: BaseException | None) -> None:
        """Make refusals name the missing right, who lacks it, and how an administrator grants it."""
        if isinstance(error, BaseExceptionGroup):
            for exception in error.exceptions:
                self.explain(exception)
        if not isinstance(error, Refused) or error.kind is not FailureKind.AUTHORIZATION or error.right is not None:
            return
        kinds = [asked_for(right, self.needs) for right in self.denied if right.code is error.code]
        where = str(error.where or "").split()
        if kinds:
            named = [kind for kind in kinds if kind.name in where] or kinds
            # Others were asked for beside the work: their loss did not end it.
            needed = [right for right in named if (right.operation, right.resource_type) in self.needs] or named
            needed = [right for right in needed if (right.operation, right.resource_type) in self._essential] or needed
            error.for_want_of(needed[-1], self.principal)

    def check_may_change(self) -> None:
        """Refuse to change what must not be changed, before anything is sent. Every change calls this.

        Raises:
            BadRequest: the profile is read-only, or it is a snapshot.
        """
        if self.target.snapshot is not None:
            raise BadRequest("a snapshot cannot be changed", where=str(self.target.snapshot))
        if self.target.is_read_only:
            hint = "remove read_only from its profile, or name the cluster by its address"
            raise BadRequest("this cluster is read-only here", where=self.target.name, hint=hint)

    def accepted(self, what_goes_on: Words) -> None:
        """Tell the caller that from now on a change may be carried out whatever happens to this process.

        Raises:
            BadRequest: nothing may be changed here.
        """
        self.check_may_change()
        self._accepted(what_goes_on)

    @property
    def source(self) -> Source:
        return self.target.source

    @property
    def reads_from(self) -> Side:
        return self.target.reads_from

    @property
    def changes_by(self) -> Side:
        return self.target.changes_by

    def snapshot(self) -> ClusterSnapshot:
        """Return the snapshot that was named; its file is read once.

        Raises:
            BadRequest: none was named, or the file holds none.
            NotFound: there is no such file.
        """
        if self.target.snapshot is None:
            raise BadRequest("this needs a snapshot", hint=Phrase("give ", Give(Parameter.SNAPSHOT)))
        from engine.admin.cluster.snapshot_file import load_snapshot

        return load_snapshot(self.target.snapshot)

    async def zookeeper(self) -> ZkClient:
        """Return the client of the cluster's ZooKeeper.

        Raises:
            BadRequest: no ZooKeeper is named.
            ZooKeeperUnreachable: it does not answer, or has no cluster, and the caller may ask the brokers instead.
            Unreachable: it does not answer, or has no cluster.
        """
        if self._zk is not None:
            return self._zk
        if self.target.zookeeper is None:
            raise BadRequest("this needs ZooKeeper", hint=NAME_ZOOKEEPER)
        from engine.admin.cluster.zookeeper import open_zookeeper

        has_brokers = bool(self.target.bootstrap)
        try:
            with self.waits.on(self._zookeeper_name):
                zk = await open_zookeeper(
                    self.target.zookeeper,
                    security=self.target.zookeeper_security,
                    timeout_s=self.timeout_s,
                    has_brokers=has_brokers,
                    patience_s=self.timeout_s,
                )
                if self._expects_znodes:
                    await self._check_znodes(zk)
        except Unreachable as error:
            self._settings.zookeeper_was_away(self.target.zookeeper, error, self.target.zookeeper_security)
            if not has_brokers or self.target.via is not None:
                raise
            raise ZooKeeperUnreachable(error.message, where=error.where, hint=error.hint) from error
        self._zk = zk
        self._settings.answered()
        self.observe(f"connected to ZooKeeper {self.target.zookeeper}")
        if self._wire is not None:
            await self._check_is_one(self._wire.cluster_id, for_change=False)
        return zk

    async def _check_is_one(self, brokers: str | None, *, for_change: bool) -> None:
        """Compare the id of the named brokers' cluster with that in ZooKeeper, once.

        Unless ZooKeeper was read, that is done only before a change: somebody may have read there what to change. A
        ZooKeeper that does not answer soon, or has no id (before Kafka 0.10.1), is no obstacle.

        Raises:
            MixedClusters: they differ.
        """
        target = self.target
        is_read = self._zk is not None
        if brokers is None or not target.bootstrap or not target.may_ask_zookeeper or not (is_read or for_change):
            return
        async with self._comparing:
            if self._id_in_zookeeper is None:
                self._id_in_zookeeper = await self._read_id() or ""
        if self._id_in_zookeeper not in ("", brokers):
            named = ",".join(address_text(*address) for address in target.bootstrap)
            raise MixedClusters(brokers, self._id_in_zookeeper, where=f"{named} and {target.zookeeper}")

    async def _read_id(self) -> str | None:
        """Return the cluster's id in ZooKeeper; None if it has none, or does not answer within a share of the time."""
        from engine.admin.cluster.zookeeper import open_zookeeper
        from engine.common.errors import CoordinationError
        from engine.kafka.zk.kafka_client import KafkaZkClient

        limit_s = min(_COMPARING_S, self.timeout_s * _COMPARING_SHARE)
        zk = self._zk
        with suppress(TimeoutError, AdminError, CoordinationError):
            async with asyncio.timeout(limit_s):
                if zk is None:
                    assert self.target.zookeeper is not None
                    zk = await open_zookeeper(
                        self.target.zookeeper,
                        security=self.target.zookeeper_security,
                        timeout_s=limit_s,
                        has_brokers=True,
                        patience_s=limit_s,
                    )
                try:
                    return await KafkaZkClient(zk).cluster.get_cluster_id()
                finally:
                    if zk is not self._zk:
                        await zk.close()
        return None

    async def _check_znodes(self, zk: ZkClient) -> None:
        """Close the session and raise Unreachable if no cluster has ever been in this part of ZooKeeper."""
        from engine.kafka.zk.errors import NoAuth

        try:
            with suppress(NoAuth):
                if not _ZNODES_OF_A_CLUSTER.intersection(await zk.children("/")):
                    raise Unreachable(
                        "no cluster's znodes are there",
                        where=self.target.zookeeper,
                        hint="check the part after the slash",
                    )
        except BaseException:
            await zk.close()
            raise

    async def wire(self) -> WireCluster:
        """Return the cluster's brokers: those named, or else those registered in ZooKeeper.

        Raises:
            Unreachable: no broker is named or registered.
        """
        if self._wire is None:
            from engine.admin.cluster.wire import WireCluster

            bootstrap = self.target.bootstrap or await self._registered()
            if self._wire is not None:
                return self._wire
            self._wire = WireCluster(
                bootstrap,
                properties=self.target.client_properties,
                observe=self.observe,
                complain=self.complain,
                find_more=self._registered if self.target.bootstrap and self.target.may_ask_zookeeper else None,
                connect_timeout_s=self.timeout_s * 0.8,
                request_timeout_s=self.timeout_s,
                waits=self.waits,
                settings=self._settings,
                look_at_zookeeper=self._look_at_zookeeper if self.target.may_ask_zookeeper else None,
                confirm=self._check_is_one,
                is_dry_run=self.is_dry_run,
                denied=self._denied,
            )
        return self._wire

    async def _look_at_zookeeper(self) -> None:
        """Note whether ZooKeeper is away, before a broker is asked for what it would read from there."""
        if self._zk is not None or self.target.zookeeper is None:
            return
        from engine.admin.cluster.zookeeper import look

        looked = await look(self.target.zookeeper)
        if not looked.says_a_word:
            error = looked.error(self.target.zookeeper)
            self._settings.zookeeper_was_away(self.target.zookeeper, error, self.target.zookeeper_security)

    async def zookeeper_trouble(self) -> str | None:
        """Return why ZooKeeper is not asked, although the caller named it; None if it answers."""
        return await self._settings.zookeeper_trouble()

    @property
    def unanswered(self) -> list[Operation]:
        """Operations that show the outcome of unanswered changes; empty if everything was answered."""
        looks = [] if self._wire is None else [look for look, count in self._wire.unanswered.items() if count]
        if self._zk is not None:
            looks += [_shown_by(path) for path in self._zk.unanswered]
        return list(dict.fromkeys(looks))

    def awaited(self, least_s: float) -> dict[str, float]:
        """Return who has kept this waiting for at least this many seconds, and for how long."""
        zookeeper_s = 0.0 if self._zk is None else self._zk.silent_s
        silent = {self._zookeeper_name: zookeeper_s} if zookeeper_s >= least_s else {}
        return self.waits.silent(least_s) | silent

    def kept_waiting_longest(self) -> str | None:
        """Return the broker that was waited for longest when the time ran out; None if no broker was."""
        longest = self.waits.longest()
        is_controller = self._wire is not None and longest is not None and longest == self._wire.controller_address
        return f"{longest}, the controller" if is_controller else longest

    @property
    def has_sent_changes(self) -> bool:
        """Whether anything was sent that may change the cluster, answered or not."""
        by_wire = self._wire is not None and self._wire.change_count > 0
        return self._has_sent or by_wire or (self._zk is not None and self._zk.write_count > 0)

    async def close_wire(self) -> None:
        """Close the connections to brokers; the next ``wire`` opens new ones, to the brokers that answer then."""
        self._has_sent = self.has_sent_changes
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close("klamm closed the connection and opens another")

    async def close(self) -> None:
        """Close what is open."""
        wire, self._wire = self._wire, None
        zk, self._zk = self._zk, None
        try:
            if wire is not None:
                await wire.close()
        finally:
            if zk is not None:
                await zk.close()

    @property
    def _zookeeper_name(self) -> str:
        return f"ZooKeeper {self.target.zookeeper}"

    async def _registered(self) -> tuple[tuple[str, int], ...]:
        from engine.admin.cluster.zookeeper import registered_addresses

        addresses = await registered_addresses(await self.zookeeper(), self.target.client_properties.security_protocol)
        if not addresses:
            where = self.target.zookeeper
            raise Unreachable("no broker is registered", where=where, hint="start the cluster's brokers")
        self.observe(f"brokers found in ZooKeeper: {', '.join(f'{host}:{port}' for host, port in addresses)}")
        return addresses
