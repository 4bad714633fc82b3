"""Envelope (58): v0.

Behaviour
* Closes the connection, as Kafka does where brokers do not forward requests (KIP-590): with ZooKeeper they never do.
"""

from __future__ import annotations

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.broker.network.request import CLOSE_CONNECTION
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.envelope import EnvelopeRequest


@handles(ApiKey.ENVELOPE, requires=[])
def envelope(context: RequestContext, request: EnvelopeRequest) -> object:
    return CLOSE_CONNECTION
