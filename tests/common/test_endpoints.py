"""Which of a broker's addresses a client or another broker uses."""

from __future__ import annotations

from engine.common.model import BrokerInfo, Endpoint, SecurityProtocol

INTERNAL = Endpoint("a", 1, "INTERNAL", SecurityProtocol.PLAINTEXT)
SECRET = Endpoint("b", 2, "SECRET", SecurityProtocol.SASL_SSL)
EXTERNAL = Endpoint("c", 3, "EXTERNAL", SecurityProtocol.PLAINTEXT)
BROKER = BrokerInfo(1, (SECRET, INTERNAL, EXTERNAL))


def test_a_listeners_name_or_a_security_protocol_finds_its_endpoints() -> None:
    assert BROKER.endpoint_for("EXTERNAL") is EXTERNAL
    assert BROKER.endpoint_for(SecurityProtocol.PLAINTEXT) is INTERNAL
    assert BROKER.endpoint_for(SecurityProtocol.SASL_SSL) is SECRET
    assert BROKER.endpoints_for(SecurityProtocol.PLAINTEXT) == (INTERNAL, EXTERNAL)


def test_no_endpoint_stands_for_another() -> None:
    assert BROKER.endpoint_for("PLAINTEXT") is None
    assert BROKER.endpoint_for(SecurityProtocol.SSL) is None
    assert BROKER.endpoints_for(SecurityProtocol.SASL_PLAINTEXT) == ()


def test_an_endpoint_without_a_listener_is_named_after_its_protocol() -> None:
    assert str(Endpoint.of_protocol("::1", 9, SecurityProtocol.SSL)) == "SSL://[::1]:9"
