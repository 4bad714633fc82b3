"""Which keys of client properties are most likely typing errors."""

from __future__ import annotations

import pytest

from engine.admin.cluster.client_properties import unknown_keys


@pytest.mark.parametrize(
    "key",
    [
        "bootstrap.servers",
        "acks",
        "isolation.level",
        "sasl.client.callback.handler.class",
        "ssl.keystore.certificate.chain",
        "config.providers.file.class",
        "metrics.context.team",
        "klamm.oauthbearer.token.command",
    ],
)
def test_keys_of_every_client_are_known(key: str) -> None:
    assert unknown_keys([key]) == {}


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("security.protocl", "security.protocol"),
        ("sasl.mechanisms", "sasl.mechanism"),
        ("ssl.ca.location", None),
        ("Security.Protocol", "security.protocol"),
        ("my.own.setting", None),
    ],
)
def test_the_nearest_known_key(key: str, near: str | None) -> None:
    assert unknown_keys([key]) == {key: near}
