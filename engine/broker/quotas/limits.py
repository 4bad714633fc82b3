"""The quotas of one kind that are set, and which of them a client has. Source: ClientQuotaManager of Kafka 3.9."""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple

from engine.kafka.zk.configs import DEFAULT_ENTITY, desanitized

ANYBODY: Final = None
"""A user or a client id that stands for all that have no quota of their own."""


NAME_CHARS_MAX: Final = 255
"""A longer name is known by its beginning and its hash."""

_HASH_CHARS: Final = 32


class Owner(NamedTuple):
    """Who shares one quota: a client id of a user, all of a user's client ids, or a client id of all users.

    ``""`` stands for all users, or for all client ids.
    """

    user: str
    client_id: str


_Name = str | None
_Entity = tuple[_Name, _Name]


class Limits:
    """Quotas by user and client id. ``""`` where a quota is not about users, or not about client ids."""

    def __init__(self) -> None:
        self._by_entity: dict[_Entity, float] = {}

    def __bool__(self) -> bool:
        return bool(self._by_entity)

    def set(self, entity: _Entity, limit: float | None) -> bool:
        """Set a quota or (None) drop it; return whether that changes anything."""
        if self._by_entity.get(entity) == limit:
            return False
        if limit is None:
            del self._by_entity[entity]
        else:
            self._by_entity[entity] = limit
        return True

    def of(self, user: str, client_id: str) -> tuple[Owner, float] | None:
        """Return who shares the quota that a client has, and its value; None if it has none.

        Of eight levels the first that is set counts: a user's client id, a user's default for client ids, the user,
        then the same three of the default user; the client id; the default for client ids.
        """
        known = self._by_entity
        whole, of_user, of_client = Owner(user, client_id), Owner(user, ""), Owner("", client_id)
        for owner, entity in (
            (whole, (user, client_id)),
            (whole, (user, ANYBODY)),
            (of_user, (user, "")),
            (whole, (ANYBODY, client_id)),
            (whole, (ANYBODY, ANYBODY)),
            (of_user, (ANYBODY, "")),
            (of_client, ("", client_id)),
            (of_client, ("", ANYBODY)),
        ):
            if client_id == "" and entity[1] != "":
                # A client without a client id has its user's quota at most.
                continue
            limit = known.get(entity)
            if limit is not None:
                return owner, limit
        return None

    def is_set_for(self, owner: Owner) -> bool:
        """Say whether a quota names this owner: it is no default."""
        return tuple(owner) in self._by_entity

    def shared_by(self, user: str, client_id: str) -> Owner:
        """Return with whom a client is counted that has no quota, as Kafka does: it depends on the levels in use."""
        levels = {(entity[0] != "", entity[1] != "") for entity in self._by_entity}
        return {
            frozenset({(True, False)}): Owner(user, ""),
            frozenset({(True, True)}): Owner(user, client_id),
        }.get(frozenset(levels), Owner("", client_id))


def entity_of(folder: str, name: str) -> _Entity:
    """Return whose quota ``/config/<folder>/<name>`` is: ``clients``, ``app``; ``users``, ``alice/clients/app``."""
    if folder == "clients":
        return "", _named(name)
    user, _, client = name.partition("/clients/")
    return _named(user), _named(client) if client else ""


def known_as(name: str) -> str:
    """Return under which name a user or a client id is counted.

    A client says its id in each request, with 32,767 bytes if it likes, and is remembered for a while.
    """
    if len(name) <= NAME_CHARS_MAX:
        return name
    return f"{name[: NAME_CHARS_MAX - _HASH_CHARS - 3]}...{sha256(name.encode()).hexdigest()[:_HASH_CHARS]}"


def _named(znode: str) -> _Name:
    return ANYBODY if znode == DEFAULT_ENTITY else known_as(desanitized(znode))
