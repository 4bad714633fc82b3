"""Delegation tokens of the cluster (KIP-48), kept in step with ZooKeeper: Kafka's ``DelegationTokenManagerZk``.

A token's HMAC, in base64, is the password of a SCRAM login. It follows from the token's id and the
brokers' common secret, so it is not stored.
"""

from __future__ import annotations

import base64
import hmac
import logging
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from engine.broker.network.session import ANONYMOUS, Session
from engine.broker.security.sasl_mechanisms import Candidate, LoggedIn
from engine.common.clock import Clock
from engine.common.errors import CoordinationError, ErrorCode, KafkaError
from engine.common.model import SecurityProtocol
from engine.common.topic_id import topic_id_text
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.formats.scram_credential import HASHES, ITERATIONS_MIN, ScramCredential
from engine.kafka.zk.change_follower import ChangeFollower
from engine.kafka.zk.errors import ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.tokens import DelegationToken, DelegationTokenChangeZNode

logger = logging.getLogger("kafka.server.DelegationTokenManagerZk")

_SALT_BYTES: Final = 16


def secret_of_tokens(config: BrokerConfig) -> str:
    """Return the secret that tokens are made with, by its new name or its old one; empty: there are no tokens."""
    key = config.delegation_token_secret_key or config.delegation_token_master_key
    return key.secret if key is not None else ""


def may_ask_for_tokens(session: Session) -> bool:
    """Return whether a connection may carry requests about tokens: it is safe, and not itself logged in by a token."""
    protocol = session.security_protocol
    is_anonymous_tls = protocol == SecurityProtocol.SSL and session.principal == ANONYMOUS
    return not (session.is_by_token or protocol == SecurityProtocol.PLAINTEXT or is_anonymous_tls)


def is_owner_or_renewer(token: DelegationToken, principal: str) -> bool:
    """Return whether a principal may see a token without any right."""
    return principal in (token.owner, token.token_requester, *token.renewers)


class DelegationTokens:
    """All tokens, from ``start`` on."""

    def __init__(self, zk: KafkaZkClient, clock: Clock, config: BrokerConfig) -> None:
        self.all: dict[str, DelegationToken] = {}
        """By id."""
        self._zk, self._clock = zk, clock
        self._secret = secret_of_tokens(config).encode()
        self._max_lifetime_ms = config.delegation_token_max_lifetime_ms
        self._renewal_ms = config.delegation_token_expiry_time_ms
        self._ids: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        folders = {DelegationTokenChangeZNode.parent_path: DelegationTokenChangeZNode.decode}
        self._follower = ChangeFollower(
            zk.client, clock, folders, self._refresh_all, self._reload, subject="delegation tokens"
        )

    async def start(self) -> None:
        """Read all tokens and follow their changes.

        Raises:
            CoordinationError: ZooKeeper does not answer.
        """
        await self._zk.tokens.make_paths()
        await self._follower.start()

    async def stop(self) -> None:
        """Stop following changes."""
        await self._follower.stop()

    def hmac(self, token_id: str) -> bytes:
        """Return what a token's holder proves to know."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def candidate(self, mechanism: str, token_id: str) -> Candidate | None:
        """Return what a login with a token is checked against, and that its owner then is in; None: no such token.

        The credential is made at the first login: thousands of tokens would hold up a start for a minute.
        """
        token = self.all.get(token_id)
        if token is None:
            return None
        made = self._credentials.get((mechanism, token_id))
        if made is None:
            password = base64.b64encode(self.hmac(token_id)).decode()
            salt = secrets.token_bytes(_SALT_BYTES)
            made = ScramCredential.of_password(mechanism, password, salt, ITERATIONS_MIN)
            self._credentials[mechanism, token_id] = made
        owner = token.owner.partition(":")[2]
        return made, LoggedIn(owner, expires_at_ms=token.expiry_timestamp_ms, is_by_token=True)

    async def create(
        self, owner: str, requester: str, renewers: Sequence[str], max_lifetime_ms: int
    ) -> DelegationToken:
        """Make a token for an owner; a lifetime of 0 or less is the longest."""
        limit_ms = self._max_lifetime_ms
        now_ms = self._clock.now_ms()
        max_ms = now_ms + (limit_ms if max_lifetime_ms <= 0 else min(max_lifetime_ms, limit_ms))
        token = DelegationToken(
            token_id=topic_id_text(uuid.uuid4().bytes),
            owner=owner,
            token_requester=requester,
            renewers=tuple(renewers),
            issue_timestamp_ms=now_ms,
            expiry_timestamp_ms=min(max_ms, now_ms + self._renewal_ms),
            max_timestamp_ms=max_ms,
        )
        await self._zk.tokens.create(token)
        self._put(token)
        logger.info("Created a delegation token: %s for owner: %s", token.token_id, owner)
        return token

    async def renew(self, who: str, token_hmac: bytes, period_ms: int) -> int:
        """Make a token last for another period from now; return when it then expires.

        Raises:
            KafkaError: there is no such token, or it has expired, or belongs to another principal.
        """
        token = self._owned(who, token_hmac)
        expiry_ms = await self._set_expiry(token, self._renewal_ms if period_ms < 0 else period_ms)
        logger.info("Delegation token renewed for token: %s for owner: %s", token.token_id, token.owner)
        return expiry_ms

    async def expire(self, who: str, token_hmac: bytes, period_ms: int) -> int:
        """Make a token end after a period from now, or at once if that is negative; return when it expires.

        Raises:
            KafkaError: as ``renew``.
        """
        token = self._owned(who, token_hmac)
        if period_ms >= 0:
            expiry_ms = await self._set_expiry(token, period_ms)
            logger.info("Updated expiry time for token: %s for owner: %s", token.token_id, token.owner)
            return expiry_ms
        now_ms = self._clock.now_ms()
        await self._remove(token)
        logger.info("Token expired for token: %s for owner: %s", token.token_id, token.owner)
        return now_ms

    async def remove_expired(self) -> None:
        """Remove the tokens that have expired: the controller's task."""
        for token in list(self.all.values()):
            if self._has_expired(token):
                logger.info("Delegation token expired for token: %s for owner: %s", token.token_id, token.owner)
                await self._remove(token)

    async def refresh(self, token_id: str) -> None:
        """Read a token again. A token that cannot be read lets no client in."""
        try:
            token = await self._zk.tokens.get(token_id)
        except ZnodeFormatError as error:
            logger.error("Nobody can log in with a token until it is repaired: %s", error)
            token = None
        if token is None:
            self._forget(token_id)
        else:
            self._put(token)

    async def _refresh_all(self, token_ids: Sequence[str]) -> None:
        for token_id in token_ids:
            await self.refresh(token_id)

    async def _reload(self) -> None:
        read = await self._zk.tokens.get_all()
        for gone in self.all.keys() - read.keys():
            self._forget(gone)
        for token_id, token in read.items():
            if isinstance(token, ZnodeFormatError):
                logger.error("Nobody can log in with a token until it is repaired: %s", token)
                self._forget(token_id)
            elif isinstance(token, CoordinationError):
                raise token
            else:
                self._put(token)

    def _put(self, token: DelegationToken) -> None:
        self.all[token.token_id] = token
        self._ids[self.hmac(token.token_id)] = token.token_id

    def _forget(self, token_id: str) -> None:
        self.all.pop(token_id, None)
        self._ids.pop(self.hmac(token_id), None)
        for mechanism in HASHES:
            self._credentials.pop((mechanism, token_id), None)

    def _owned(self, who: str, token_hmac: bytes) -> DelegationToken:
        token_id = self._ids.get(token_hmac)
        if token_id is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        token = self.all[token_id]
        if who != token.owner and who not in token.renewers:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _has_expired(self, token: DelegationToken) -> bool:
        return min(token.max_timestamp_ms, token.expiry_timestamp_ms) < self._clock.now_ms()

    async def _set_expiry(self, token: DelegationToken, period_ms: int) -> int:
        if self._has_expired(token):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        expiry_ms = min(token.max_timestamp_ms, self._clock.now_ms() + period_ms)
        changed = replace(token, expiry_timestamp_ms=expiry_ms)
        if not await self._zk.tokens.set(changed):
            self._forget(token.token_id)
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if token.token_id in self.all:
            self._put(changed)
        return expiry_ms

    async def _remove(self, token: DelegationToken) -> None:
        await self._zk.tokens.delete(token.token_id)
        self._forget(token.token_id)
