"""How a running broker's listeners change, by requests that both engines answer in the same words."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from certificates import Authority
from patience import within
from wire_client import ConnectionClosed, WireClient

from engine.kafka.client.sasl.exchange import plain_exchange
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest

BROKER_RESOURCE = 4
CA = Authority()
LATER = "listener.name.later."
LOGINS = f"{LATER}plain.sasl.jaas.config"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
MAP = "PLAINTEXT:PLAINTEXT,LATER:SASL_SSL"


class ChangingListeners:
    """A broker whose listener PLAINTEXT is at ``port``. ``LATER``, over SASL_SSL, comes at the next port."""

    def __init__(self, folder: Path, host: str, port: int, *, has_logins_in_file: bool) -> None:
        """``has_logins_in_file``: who may log in at ``LATER`` stands in the broker's file."""
        folder.mkdir(parents=True, exist_ok=True)
        self.host, self.port = host, port
        store = CA.sign("broker", [host]).write_pem(folder / "later.pem")
        self.opening = {
            "listeners": self.at("PLAINTEXT", "LATER"),
            "advertised.listeners": self.at("PLAINTEXT", "LATER"),
            "listener.security.protocol.map": MAP,
            f"{LATER}ssl.keystore.type": "PEM",
            f"{LATER}ssl.keystore.location": str(store),
        }
        self._in_file = {
            "listeners": self.at("PLAINTEXT"),
            "advertised.listeners": self.at("PLAINTEXT"),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "password.encoder.secret": "enc0der-Secr3t",
        }
        logins = self._in_file if has_logins_in_file else self.opening
        logins[LOGINS] = f'{PLAIN} required user_alice="al1ce-Secr3t";'

    def settings(self) -> dict[str, str]:
        """Return what the broker's file needs beside the fewest settings."""
        return self._in_file

    def at(self, *names: str, **ports: int) -> str:
        numbers = {"PLAINTEXT": self.port, "LATER": self.port + 1, **ports}
        return ",".join(f"{name}://{self.host}:{numbers[name]}" for name in names)

    def change(self, texts: Mapping[str, str | None]) -> str:
        """Set settings of the broker, or (None) drop them; return the error in the answer, or nothing."""
        configs = [
            AlterableConfig(name=name, config_operation=int(text is None), value=text) for name, text in texts.items()
        ]
        resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="0", configs=configs)
        with WireClient(f"{self.host}:{self.port}") as client:
            (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        return f"{answer.error_code} {answer.error_message}" if answer.error_code else ""

    def log_in(self) -> WireClient:
        """Return a client that has logged in at ``LATER``."""
        client = WireClient(f"{self.host}:{self.port + 1}")
        try:
            context = ssl.create_default_context(cadata=CA.pem)
            client.socket = context.wrap_socket(client.socket, server_hostname=self.host)
            assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            token = next(plain_exchange("alice", "al1ce-Secr3t"))
            assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
        except BaseException:
            client.socket.close()
            raise
        return client

    def addresses(self) -> list[tuple[str, int]]:
        """Return the brokers' addresses as whoever has logged in is told."""
        with self.log_in() as client:
            return [(broker.host, broker.port) for broker in client.ask(MetadataRequest(topics=[]), 9).brokers]

    def wait_until_told(self) -> None:
        """Wait until ``LATER`` is open and its clients are told its address."""
        is_in_time = within(30)
        while True:
            with suppress(OSError, ConnectionClosed):
                if self.addresses() == [(self.host, self.port + 1)]:
                    return
            assert is_in_time(), "the listener does not open"
            time.sleep(0.1)

    def wait_until_closed(self) -> None:
        """Wait until nobody answers at the address of ``LATER``."""
        is_in_time = within(30)
        while True:
            try:
                socket.create_connection((self.host, self.port + 1), timeout=5).close()
            except ConnectionRefusedError:
                return
            assert is_in_time(), "the listener stays open"
            time.sleep(0.1)


def listeners_come_and_go(broker: ChangingListeners) -> list[str]:
    """Open a listener, use it, change what may not change, and close it; return what the broker refuses, and how."""
    said = [broker.change(broker.opening)]
    broker.wait_until_told()
    with broker.log_in() as inside, WireClient(f"{broker.host}:{broker.port}") as other:
        other.ask(MetadataRequest(topics=[]), 9)
        said += [
            broker.change({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LATER:SSL"}),
            broker.change({"listeners": broker.at("LATER"), "advertised.listeners": broker.at("LATER")}),
            broker.change({"listeners": broker.at("PLAINTEXT")}),
            broker.change({"listeners": "LATER:no"}),
        ]
        assert inside.ask(MetadataRequest(topics=[]), 9).brokers
        # As long as it keeps its name, it stays where it is.
        said.append(broker.change({"listeners": broker.at("PLAINTEXT", "LATER", LATER=broker.port + 2)}))
        assert inside.ask(MetadataRequest(topics=[]), 9).brokers
        # Kafka would look for the listener at its new address, and leave it open for good.
        said.append(broker.change({"listeners": broker.at("PLAINTEXT", "LATER")}))
        of_all = [name for name in broker.opening if not name.startswith(LATER)]
        said.append(broker.change(dict.fromkeys(of_all)))
        broker.wait_until_closed()
        assert inside.is_closed_by_peer()
        assert other.ask(MetadataRequest(topics=[]), 9).brokers
    return said
