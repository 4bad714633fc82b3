"""Whose settings a command line means: the types, names and shortcuts of kafka-configs."""

from __future__ import annotations

import pytest
from typer._click.exceptions import UsageError

from cli.commands.configs import ByType, chosen_entity


def whose(types: str = "", names: str = "", default: bool = False, **said: str | bool) -> tuple[str, str | None]:
    shortcuts = [
        (kind, value if isinstance(value, str) else None, value is True) for kind, value in said.items() if value
    ]
    by_type = ByType(entity_type=types.split(), entity_name=names.split(), entity_default=default)
    chosen = chosen_entity(by_type, shortcuts)
    if chosen.entity is not None:
        return chosen.kind.value, chosen.entity.name
    return chosen.kind.value, f"all of {chosen.user}/{chosen.client}" if chosen.user or chosen.client else "all"


def test_whose_settings() -> None:
    assert whose("topics", "t") == ("topics", "t") == whose(topics="t")
    assert whose("brokers", default=True) == ("brokers", None) == whose(brokers=True)
    assert whose("users") == ("users", "all")
    assert whose("users clients", "alice app") == ("users/clients", "alice/app") == whose(users="alice", clients="app")
    assert whose("clients users", "app alice") == ("users/clients", "alice/app")
    assert whose("users clients") == ("users/clients", "all")
    assert whose(users=True, clients="app") == ("users/clients", "<default>/app")
    assert whose("users clients", "alice") == ("users/clients", "all of alice/None") == whose("clients", users="alice")
    assert whose("users", clients="app/1") == ("users/clients", "all of None/app%2F1")
    assert whose("users clients", default=True) == ("users/clients", "all of <default>/None")


def test_all_clients_of_one_user() -> None:
    chosen = chosen_entity(ByType(entity_type=["users", "clients"], entity_name=["a/b"]), [])
    assert [name for name in ("a%2Fb/x", "a%2Fb/<default>", "a/b", "<default>/x") if chosen.takes(name)] == [
        "a%2Fb/x",
        "a%2Fb/<default>",
    ]
    everybody = chosen_entity(ByType(entity_type=["users"]), [])
    assert everybody.takes(None)
    assert everybody.takes("alice")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "say whose settings"),
        ({"types": "nonsense", "names": "x"}, "must be one of topics"),
        ({"types": "topics brokers", "names": "t 0"}, "only one kind of entity"),
        ({"types": "topics", "topics": "t"}, "only one kind of entity"),
        ({"names": "t"}, "need an --entity-type"),
        ({"types": "topics", "names": "a b"}, "more names than types"),
        ({"types": "topics", "names": "a", "default": True}, "more names than types"),
        ({"types": "users clients", "names": "a", "default": True}, "which type has the default"),
    ],
)
def test_settings_of_nobody(words: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        whose(**words)  # type: ignore[arg-type]
