"""Users' SCRAM credentials: listed, set and removed, over the wire (KIP-554) or in ZooKeeper.

A password is salted here: neither a broker nor a znode ever has it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.target import Side
from engine.admin.cluster.wire_failures import refuse
from engine.admin.configs.quotas import SCRAM_MECHANISMS
from engine.admin.configs.values import ConfigSource, EntityConfigs
from engine.common.errors import ErrorCode
from engine.kafka.formats.scram_credential import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential
from engine.kafka.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

ITERATIONS_DEFAULT = 8192
"""The default of kafka-configs in Kafka 3.9."""
_CODES = {name: code for code, name in SCRAM_MECHANISMS.items()}
_SAID = re.compile(r"(?:iterations=(-?\d*),)?password=(.*)", re.DOTALL)
_SALT_BYTES = 24


@dataclass(frozen=True, slots=True)
class UserCredential:
    """One way in which a user may log in."""

    user: str
    mechanism: str
    iterations: int | None


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential to set. The password is in no text of it."""

    mechanism: str
    salt: bytes
    salted_password: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"NewCredential({self.mechanism}, {self.iterations} iterations)"

    @classmethod
    def of_password(cls, mechanism: str, password: str, iterations: int | None = None) -> NewCredential:
        """Salt a password, which takes some milliseconds.

        Raises:
            BadRequest: there is no such mechanism, the password is empty, or the iterations are too few or too many.
        """
        rounds = ITERATIONS_DEFAULT if iterations is None else iterations
        if not ITERATIONS_MIN <= rounds <= ITERATIONS_MAX:
            raise BadRequest(f"{rounds} iterations: Kafka takes {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        if not password:
            raise BadRequest("the password is empty")
        mechanism = parse_mechanism(mechanism)
        salt = secrets.token_bytes(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, rounds)
        return cls(mechanism, salt, salted, rounds)


def parse_mechanism(text: str) -> str:
    """Return Kafka's name of a mechanism that is written in any case.

    Raises:
        BadRequest: it is none that keeps credentials in the cluster.
    """
    if text.upper() in _CODES:
        return text.upper()
    raise BadRequest(f"no such mechanism: {text}", hint=f"one of {', '.join(name.lower() for name in _CODES)}")


def credentials_in(users: Sequence[EntityConfigs]) -> list[UserCredential]:
    """Return the credentials among users' settings."""
    return [
        UserCredential(credential.entity_name or "", entry.name, _iterations(entry.value))
        for credential in users
        for entry in credential.configs
        if entry.source is ConfigSource.SCRAM_CREDENTIAL
    ]


def _iterations(text: str | None) -> int | None:
    return None if text is None else int(text.rpartition("=")[2])


async def change_credentials(
    cluster: Cluster, user: str, wanted: Sequence[NewCredential], removed: Sequence[str]
) -> None:
    """Set and remove credentials of a user. Other credentials and the user's quotas stay.

    Raises:
        BadRequest: the user has no name, or nothing may be changed here.
        NotFound: one to be removed is not there.
        Refused: the cluster rejects it.
    """
    cluster.check_may_change()
    if not user:
        raise BadRequest("the user has no name")
    if cluster.changes_by is Side.ZOOKEEPER:
        await _change_znode(cluster, user, wanted, removed)
        return
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=user, mechanism=_CODES[mechanism]) for mechanism in removed],
        upsertions=[
            ScramCredentialUpsertion(
                name=user,
                mechanism=_CODES[credential.mechanism],
                iterations=credential.iterations,
                salt=credential.salt,
                salted_password=credential.salted_password,
            )
            for credential in wanted
        ],
    )
    wire = await cluster.wire()
    response = await wire.call_controller(request, lambda answer: [result.error_code for result in answer.results])
    for result in response.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            raise _absent(user, removed)
        refuse(result.error_code, result.error_message, f"user {user}")


def _absent(user: str, removed: Sequence[str]) -> NotFound:
    hint = Phrase("who has which: ", Operation.LIST_USERS)
    return NotFound(f"no credential for {' and '.join(removed)}", where=f"user {user}", hint=hint)


async def _change_znode(cluster: Cluster, user: str, wanted: Sequence[NewCredential], removed: Sequence[str]) -> None:
    from engine.kafka.zk.configs import ConfigType, sanitized
    from engine.kafka.zk.kafka_client import KafkaZkClient

    kafka = KafkaZkClient(await cluster.zookeeper())
    path = f"{ConfigType.USER.value}/{sanitized(user)}"
    settings = await kafka.configs.get_entity_configs(path)
    if any(mechanism not in settings for mechanism in removed):
        raise _absent(user, [mechanism for mechanism in removed if mechanism not in settings])
    kept = {key: value for key, value in settings.items() if key not in removed}
    for new in wanted:
        credential = ScramCredential.of_salted_password(new.mechanism, new.salt, new.salted_password, new.iterations)
        kept[new.mechanism] = credential.encode()
    # Kafka's tool prepares users before the first broker starts, when there is no controller to check.
    has_controller = await kafka.controller.controller_exists()
    await kafka.configs.change_entity_configs(path, kept, check_controller=has_controller)


def is_credential(key: str) -> bool:
    """Whether a setting of a user is a credential."""
    return key in _CODES


def parse_credentials(additions: Mapping[str, str]) -> list[NewCredential]:
    """Read credentials as kafka-configs takes them: ``iterations=8192,password=…`` or the password alone.

    Raises:
        BadRequest: one of them is malformed. The message does not show it.
    """
    credentials = []
    for mechanism, text in additions.items():
        match = _SAID.fullmatch(text)
        if match is None:
            raise BadRequest("not a credential", where=mechanism, hint="write iterations=8192,password=…")
        rounds = int(match[1]) if match[1] not in (None, "", "-1") else None
        credentials.append(NewCredential.of_password(mechanism, match[2], rounds))
    return credentials
