"""The options of the Kafka source and sink, with the names and meanings of Spark's own, checked before any request.

klamm refuses an unknown option, because a misspelt one would silently read other records. The source's columns are here
too: Spark starts a process to ask for them, and one to check the options; neither needs the code that reads records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from engine.admin.cluster.client_properties import ClientProperties, client_properties
from engine.admin.cluster.errors import AdminError, BadRequest
from engine.admin.cluster.target import parse_addresses
from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, IsolationLevel, TopicPartition

Addresses = tuple[tuple[str, int], ...]
PartitionNumbers = dict[TopicPartition, int]

_KAFKA = "kafka."
_WHERE = "options kafka.*"
_SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")
_STRATEGIES = ("error", "latest")

_READ = (
    *("subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp"),
    *("endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss", "includeHeaders"),
    *("startingOffsetsByTimestampStrategy", "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger"),
    *("minOffsetsPerTrigger", "maxTriggerDelay", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs"),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
)
_STREAMING_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}

_SET_BY_US = {
    "kafka.auto.offset.reset": "the option startingOffsets says where to begin",
    "kafka.key.deserializer": "keys come as bytes; turn them into something with Spark's functions",
    "kafka.value.deserializer": "values come as bytes; turn them into something with Spark's functions",
    "kafka.key.serializer": "keys are bytes or text",
    "kafka.value.serializer": "values are bytes or text",
    "kafka.enable.auto.commit": "the source commits nothing; Spark's checkpoint has the position",
    "kafka.interceptor.classes": "there is no Java here that could run them",
}

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)\s*(ms|s|min|m|h|d)")


@dataclass(frozen=True, slots=True)
class Edge:
    """Where to begin or end: one rule for all partitions, or a number for each; numbers are offsets or times.

    Offsets -2 and -1 are the earliest and the latest. Times are milliseconds.
    """

    rule: int | None = None
    offsets: PartitionNumbers | None = None
    timestamp: int | None = None
    timestamps: PartitionNumbers | None = None
    takes_latest: bool = False
    """If no record is as late as the time, take the latest offset; else raise an error."""

    @property
    def is_moving(self) -> bool:
        """Whether it may mean another offset when it is looked up again."""
        if self.offsets is not None:
            return LATEST_TIMESTAMP in self.offsets.values()
        return self.rule == LATEST_TIMESTAMP or (self.rule is None and self.takes_latest)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the brokers."""

    bootstrap: Addresses
    properties: ClientProperties = field(default_factory=ClientProperties)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read, from where to where, in which pieces."""

    connection: Connection
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    start: Edge = field(default_factory=lambda: Edge(rule=LATEST_TIMESTAMP))
    end: Edge = field(default_factory=lambda: Edge(rule=LATEST_TIMESTAMP))
    fails_on_data_loss: bool = True
    has_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


def source_options(options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Return the values of a reader's options; Spark passes their names in lower case.

    Raises:
        BadRequest: an option is unknown, missing or out of place, or its value makes no sense.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    _check_names(lowered, _READ)
    for name in _BATCH_ONLY if is_streaming else _STREAMING_ONLY:
        if name.lower() in lowered:
            kind = "a batch, not for a stream" if is_streaming else "a stream, not for a batch"
            raise BadRequest(f"the option {name} is for {kind}", hint="leave it out")
    wanted = [name for name in _SUBSCRIPTIONS if name in lowered]
    if len(wanted) != 1:
        hint = "give one of subscribe (topics), subscribePattern (a regular expression), assign (JSON)"
        raise BadRequest("no option says what to read" if not wanted else "two options say what to read", hint=hint)
    return SourceOptions(
        connection(lowered),
        topics=_topics(lowered["subscribe"]) if "subscribe" in lowered else (),
        pattern=_pattern(lowered.get("subscribepattern")),
        assigned=_assigned(lowered["assign"]) if "assign" in lowered else (),
        start=_start(lowered, LATEST_TIMESTAMP if is_streaming else EARLIEST_TIMESTAMP),
        end=_edge(lowered, "ending", LATEST_TIMESTAMP, refused="earliest", takes_latest=True),
        fails_on_data_loss=_flag(lowered, "failOnDataLoss", True),
        has_headers=_flag(lowered, "includeHeaders", False),
        min_partitions=_count(lowered, "minPartitions"),
        max_records_per_partition=_count(lowered, "maxRecordsPerPartition"),
        max_offsets_per_trigger=_count(lowered, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_count(lowered, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=_duration_ms(lowered.get("maxtriggerdelay", "15m")),
        isolation=_isolation(lowered.get("kafka.isolation.level", "read_uncommitted")),
    )


def connection(given: Mapping[str, str]) -> Connection:
    """Return the brokers and the ``kafka.*`` properties.

    Raises:
        BadRequest: brokers are missing, or a property cannot be honoured.
    """
    for name, reason in _SET_BY_US.items():
        if name in given:
            raise BadRequest(f"the option {name} is not supported: {reason}", hint="leave it out")
    servers = given.get("kafka.bootstrap.servers")
    if not servers:
        raise BadRequest("the option kafka.bootstrap.servers is missing", hint="give it as host:port,host:port")
    entries = {name.removeprefix(_KAFKA): value for name, value in given.items() if name.startswith(_KAFKA)}
    return Connection(parse_addresses(servers), client_properties(entries, _WHERE))


def _check_names(given: Mapping[str, str], known: tuple[str, ...]) -> None:
    lower = {name.lower(): name for name in known}
    for name in given:
        if name not in lower and not name.startswith(_KAFKA) and name != "path":
            close = get_close_matches(name, lower, 1)
            hint = f"did you mean {lower[close[0]]}?" if close else f"there are {', '.join(known)} and kafka.*"
            raise BadRequest(f"no such option: {name}", hint=hint)


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise BadRequest("the option subscribe names no topic")
    return names


def _pattern(text: str | None) -> str | None:
    try:
        return None if text is None else re.compile(text).pattern
    except re.error as error:
        raise BadRequest(f"subscribePattern is not a regular expression: {error}", where=text) from None


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    document = _json_object("assign", text)
    if not all(isinstance(numbers, list) and all(_is_int(n) for n in numbers) for numbers in document.values()):
        raise BadRequest("assign must be topics with lists of partitions", hint='as in {"orders": [0, 1]}')
    return tuple(TopicPartition(topic, number) for topic, numbers in document.items() for number in numbers)


def _start(given: Mapping[str, str], default: int) -> Edge:
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in _STRATEGIES:
        raise BadRequest("startingOffsetsByTimestampStrategy must be error or latest", where=strategy)
    return _edge(given, "starting", default, refused=None, takes_latest=strategy == "latest")


def _edge(given: Mapping[str, str], which: str, default: int, *, refused: str | None, takes_latest: bool) -> Edge:
    """If there are several options, the more exact one wins, as in Spark's own source."""
    if (text := given.get(f"{which}timestamp")) is not None:
        return Edge(timestamp=_whole(f"{which}Timestamp", text), takes_latest=takes_latest)
    if (text := given.get(f"{which}offsetsbytimestamp")) is not None:
        return Edge(timestamps=_numbers(f"{which}OffsetsByTimestamp", text), takes_latest=takes_latest)
    name = f"{which}Offsets"
    text = given.get(name.lower())
    if text is None:
        return Edge(rule=default)
    words = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}
    if text.strip().lower() in words:
        if text.strip().lower() == refused:
            raise BadRequest(f"{name} cannot be {refused}", hint="give latest or offsets as JSON")
        return Edge(rule=words[text.strip().lower()])
    offsets = _numbers(name, text)
    if refused is not None and EARLIEST_TIMESTAMP in offsets.values():
        raise BadRequest(f"{name} cannot be -2 ({refused})")
    return Edge(offsets=offsets)


def _numbers(name: str, text: str) -> PartitionNumbers:
    document = _json_object(name, text)
    if not all(
        isinstance(numbers, dict) and all(key.isdecimal() and _is_int(n) for key, n in numbers.items())
        for numbers in document.values()
    ):
        raise BadRequest(
            f"{name} must be topics with a number for each partition", hint='as in {"orders": {"0": 23, "1": -2}}'
        )
    return {TopicPartition(topic, int(key)): n for topic, numbers in document.items() for key, n in numbers.items()}


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not document:
        raise BadRequest(f"{name} is neither a known word nor a JSON object", where=text[:80])
    return document


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise BadRequest(f"{name} must be true or false", where=text)
    return text == "true"


def _whole(name: str, text: str, least: int = 0) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise BadRequest(f"{name} must be a whole number{f' above {least - 1}' if least else ''}", where=text)
    return int(text)


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    return None if text is None else _whole(name, text, 1)


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise BadRequest("maxTriggerDelay must be a duration", where=text, hint="such as 15m or 30s")
    return int(match[1]) * _UNITS_MS[match[2]]


def _isolation(text: str) -> IsolationLevel:
    try:
        return IsolationLevel[text.strip().upper()]
    except KeyError:
        raise BadRequest("kafka.isolation.level must be read_committed or read_uncommitted", where=text) from None


def schema_text(options: Mapping[str, str]) -> str:
    """Return the source's columns as Spark writes a schema, with ``headers`` only if ``includeHeaders`` is set."""
    lowered = {name.lower(): value for name, value in options.items()}
    has_headers = lowered.get("includeheaders", "false").strip().lower() == "true"
    return ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items() if has_headers or name != "headers")


def chosen_columns(wanted: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the columns that the user's schema names; a column that is left out need not be read.

    Raises:
        BadRequest: the source has no such column, or the column has another type.
    """
    for name, kind in wanted:
        if _COLUMNS.get(name) != kind:
            known = ", ".join(f"{each} {of}" for each, of in _COLUMNS.items())
            raise BadRequest(f"the Kafka source has no column {name} of type {kind}", hint=f"it has {known}")
    return tuple(name for name, _ in wanted)


def error_text(error: BaseException) -> str:
    """Return what went wrong and what to do, in the two lines that a person reads in Spark's own error."""
    if isinstance(error, AdminError):
        where = f": {error.where}" if error.where else ""
        return f"{error.message}{where}" + (f"\nhint: {error.hint}" if error.hint else "")
    return str(error) or type(error).__name__
