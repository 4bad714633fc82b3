"""SCRAM: the example of RFC 7677, and servers that do not know the password."""

from __future__ import annotations

import pytest

from engine.kafka.client.sasl.exchange import SaslError
from engine.kafka.client.sasl.scram import scram_exchange

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_example_of_the_rfc() -> None:
    exchange = scram_exchange("SCRAM-SHA-256", "user", "pencil", is_token=False, nonce=NONCE)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(SERVER_FIRST) == PROOF
    with pytest.raises(StopIteration):
        exchange.send(SERVER_FINAL)


@pytest.mark.parametrize(
    "final", [b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", b"v=", b"", b"e=other-error", b"v=%%"]
)
def test_a_server_that_does_not_know_the_password(final: bytes) -> None:
    exchange = scram_exchange("SCRAM-SHA-256", "user", "pencil", is_token=False, nonce=NONCE)
    next(exchange)
    exchange.send(SERVER_FIRST)
    with pytest.raises(SaslError):
        exchange.send(final)


@pytest.mark.parametrize(
    "first",
    [
        SERVER_FIRST.replace(b"i=4096", b"i=4095"),
        SERVER_FIRST.replace(b"i=4096", b"i=1000001"),
        SERVER_FIRST.replace(b"r=rOpr", b"r=xOpr"),
        b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"\xff\x00",
    ],
)
def test_a_false_first_message_is_told_nothing(first: bytes) -> None:
    exchange = scram_exchange("SCRAM-SHA-256", "user", "pencil", is_token=False, nonce=NONCE)
    next(exchange)
    with pytest.raises(SaslError):
        exchange.send(first)


def test_names_with_signs_and_tokens() -> None:
    exchange = scram_exchange("SCRAM-SHA-512", "a,b=c", "p", is_token=True, nonce="n")
    assert next(exchange) == b"n,,n=a=2Cb=3Dc,r=n,tokenauth=true"
