"""What a client's properties say about security, and what they lack."""

from __future__ import annotations

import pickle

import pytest

from engine.common.errors import ConfigError
from engine.common.model import SecurityProtocol
from engine.kafka.client.security import PLAINTEXT, security_of

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="s3cret";'
WHOLE = {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN,
         "ssl.truststore.password": "s3cret"}  # fmt: skip


def test_no_secret_shows_and_processes_can_hand_it_on() -> None:
    found = security_of(WHOLE)
    assert (found.protocol, found.sasl and found.sasl.identity) == (SecurityProtocol.SASL_SSL, "alice by SCRAM-SHA-512")
    assert "s3cret" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


def test_plain_connections_are_the_default() -> None:
    assert security_of({"sasl.mechanism": "PLAIN", "ssl.keystore.location": "/absent"}) == PLAINTEXT


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"security.protocol": "TLS"}, "TLS is none of PLAINTEXT, SSL"),
        ({"sasl.mechanism": "SCRAM-SHA-1"}, "SCRAM-SHA-1 is not supported yet"),
        ({"sasl.jaas.config": ""}, "sasl.jaas.config is missing"),
        ({"sasl.jaas.config": "a.B required;"}, "lack username"),
        ({"sasl.jaas.config": 'a.B required username="a";'}, "lack password"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "ftp://x"}, "must begin with"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://x"}, "lack clientId"),
    ],
)
def test_what_is_missing(entries: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        security_of(WHOLE | entries)
    assert "s3cret" not in str(caught.value)
