"""What a producer's settings mean for the performance test: options, and properties of Kafka's clients. Pure.

They have Kafka's names. klamm refuses a setting that needs the Java client, and reports one that changes nothing
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Give, Parameter, Phrase, Words
from engine.admin.transactions.own import TRANSACTION_TIMEOUT_MS
from engine.common.model import ACKS_ALL
from engine.kafka.protocol.records.attributes import Codec, codec_named

_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1}
_IDEMPOTENT_IN_FLIGHT_MAX = 5


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How batches are made and sent; the defaults are those of Kafka's producer."""

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    level: int | None = None
    batch_bytes: int = 16_384
    """Bytes of a batch before compression."""
    linger_ms: int = 0
    is_idempotent: bool = True
    in_flight_max: int = 5
    """Requests in flight to one broker."""
    request_bytes_max: int = 1_048_576
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int | None = None
    """How long nothing may get through; None leaves it to the caller."""
    client_id: str | None = None
    transactional_id: str | None = None
    """Records are sent in transactions; None: in none."""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ignored: tuple[str, ...] = ()
    """Settings that were given and have no effect here."""


_NEEDS_JAVA: Mapping[str, Words] = {
    "interceptor.classes": "interceptors are Java classes",
    "partitioner.class": "partitioners are Java classes; batches go to one partition after the other",
    "metric.reporters": Phrase(
        "reporters are Java classes; use ", Give(Parameter.OUTPUT, "json"), ", or ", Parameter.PRINT_METRICS
    ),
}
_HINT = "leave it out, or run kafka-producer-perf-test"
SECURITY_PREFIXES = ("security.", "ssl.", "sasl.")
"""Settings of connections, which ``ClientProperties`` reads."""
_NO_SERIALIZER = {"key.serializer", "value.serializer"}


def parse_property(text: str) -> tuple[str, str]:
    """Return name and value of ``name=value``.

    Raises:
        BadRequest: it is not of this form.
    """
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise BadRequest(f"not of the form NAME=VALUE: {text}", where=Parameter.PRODUCER_PROPERTIES)
    return name.strip(), value.strip()


def settings_from(properties: Mapping[str, str]) -> ProducerSettings:
    """Return what a producer's properties ask for.

    Raises:
        BadRequest: a value is wrong, values contradict each other, or one needs the Java client.
    """
    settings, ignored = ProducerSettings(), []
    # The codec comes before its level.
    for name, value in sorted(properties.items(), key=lambda item: item[0] != "compression.type"):
        if name in _NEEDS_JAVA:
            raise BadRequest(_NEEDS_JAVA[name], where=name, hint=_HINT)
        apply = _SETTERS.get(name)
        if apply is None:
            is_for_connection = name == "bootstrap.servers" or name.startswith(SECURITY_PREFIXES)
            if name not in _NO_SERIALIZER and not is_for_connection:
                ignored.append(name)
            continue
        try:
            settings = apply(settings, value)
        except ValueError as error:
            raise BadRequest(f"{value}: {error}", where=name) from None
    return _checked(replace(settings, ignored=tuple(ignored)), properties)


def _checked(settings: ProducerSettings, given: Iterable[str]) -> ProducerSettings:
    """Turn idempotence off if other settings rule it out, as Kafka does; refuse if it was requested."""
    if settings.transactional_id is not None and not settings.is_idempotent:
        raise BadRequest("requires enable.idempotence=true", where="transactional.id")
    fits = settings.acks == ACKS_ALL and settings.in_flight_max <= _IDEMPOTENT_IN_FLIGHT_MAX
    if not settings.is_idempotent or fits:
        return settings
    if settings.transactional_id is not None:
        raise BadRequest("requires acks=all, and at most 5 requests in flight", where="transactional.id")
    if "enable.idempotence" in given:
        message = "requires acks=all, and at most 5 requests in flight"
        raise BadRequest(message, where="enable.idempotence", hint="set enable.idempotence=false")
    return replace(settings, is_idempotent=False)


def _number(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("is not a whole number") from None
        if not least <= value <= most:
            raise ValueError(f"is not between {least} and {most}")
        return value

    return convert


def _acks(text: str) -> int:
    if text not in _ACKS:
        raise ValueError("acks are all, 1 or 0")
    return _ACKS[text]


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text.lower() == "true"


Setter = Callable[[ProducerSettings, str], ProducerSettings]


def _level(codec: Codec, least: int, most: int) -> Setter:
    """The level of one codec, in Kafka's bounds (KIP-390); it counts only if that codec is used."""

    def apply(settings: ProducerSettings, text: str) -> ProducerSettings:
        level = _number(least, most)(text)
        return replace(settings, level=level) if settings.codec is codec else settings

    return apply


_SETTERS: dict[str, Setter] = {
    "acks": lambda s, text: replace(s, acks=_acks(text)),
    "compression.type": lambda s, text: replace(s, codec=codec_named(text)),
    "compression.gzip.level": _level(Codec.GZIP, 1, 9),
    "compression.lz4.level": _level(Codec.LZ4, 1, 17),
    "compression.zstd.level": _level(Codec.ZSTD, -131_072, 22),
    "batch.size": lambda s, text: replace(s, batch_bytes=_number(1)(text)),
    "linger.ms": lambda s, text: replace(s, linger_ms=_number(0)(text)),
    "enable.idempotence": lambda s, text: replace(s, is_idempotent=_flag(text)),
    "max.in.flight.requests.per.connection": lambda s, text: replace(s, in_flight_max=_number(1, 1000)(text)),
    "max.request.size": lambda s, text: replace(s, request_bytes_max=_number(1)(text)),
    "request.timeout.ms": lambda s, text: replace(s, request_timeout_ms=_number(1)(text)),
    "delivery.timeout.ms": lambda s, text: replace(s, delivery_timeout_ms=_number(1)(text)),
    "client.id": lambda s, text: replace(s, client_id=text),
    "transactional.id": lambda s, text: replace(s, transactional_id=text),
    "transaction.timeout.ms": lambda s, text: replace(s, transaction_timeout_ms=_number(1)(text)),
}
