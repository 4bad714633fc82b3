"""Which of a broker's addresses a client or another broker uses."""

from __future__ import annotations

import pytest

from engine.common.model import BrokerInfo, Endpoint, SecurityProtocol, address_in_java

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


@pytest.mark.parametrize(
    ("address", "in_java"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:0DB8::00ff:0", "2001:db8:0:0:0:0:ff:0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("*", "*"),
        ("kafka.example", "kafka.example"),
    ],
)
def test_addresses_as_java_writes_them(address: str, in_java: str) -> None:
    assert address_in_java(address) == in_java
