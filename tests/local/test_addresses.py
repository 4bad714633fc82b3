"""Ports for servers on this machine: nobody else chooses one that is reserved or in use."""

from __future__ import annotations

import socket

import pytest

from engine.common.errors import OperationError
from engine.local.addresses import HIGHEST_PORT, LOWEST_PORT, PortReservations, own_loopback_address


def test_a_reserved_port_is_chosen_again_only_after_its_release() -> None:
    host = own_loopback_address()
    with PortReservations() as reservations, PortReservations() as other:
        assert reservations.take_any(host, 9092) == 9092
        assert LOWEST_PORT <= other.take_any(host, 9092) <= HIGHEST_PORT
        assert not reservations.take(host, 9092), "not even its owner chooses it a second time"
        reservations.release()
        assert other.take(host, 9092)


def test_a_name_and_its_address_are_the_same_place() -> None:
    with PortReservations() as reservations, PortReservations() as other:
        port = reservations.take_any("localhost")
        assert not other.take("127.0.0.1", port)


def test_a_port_on_which_somebody_listens_is_never_chosen() -> None:
    host = own_loopback_address()
    with socket.create_server((host, 9092)), PortReservations() as ports:
        assert not ports.take(host, 9092)
        assert ports.take_any(host, 9092) != 9092
    with PortReservations() as ports:
        assert ports.take(host, 9092), "a refusal reserves nothing"


def test_an_address_of_another_machine_is_refused() -> None:
    with PortReservations() as ports, pytest.raises(OperationError, match=r"^192\.0\.2\.1 is not an address of this"):
        ports.take_any("192.0.2.1", 9092)
