"""DescribeConfigs and the two AlterConfigs, answer by answer against a Kafka 3.9.1 that got the same requests."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.broker.handlers.alter_configs import alter_configs
from engine.broker.handlers.broker_loggers import level_name
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.describe_configs import describe_configs
from engine.broker.handlers.incremental_alter_configs import incremental_alter_configs
from engine.common.errors import CoordinationError, ErrorCode
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import DynamicConfigs
from engine.kafka.config.properties import parse_properties
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis import alter_configs as alter_api
from engine.kafka.protocol.apis import incremental_alter_configs as incremental_api
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from engine.kafka.protocol.frames import decode_response, encode_response

FIXTURES = Path(__file__).parents[3] / "fixtures" / "config"
EXCHANGES = [json.loads(line) for line in (FIXTURES / "kafka-3.9.1-config-requests.jsonl").read_text().splitlines()]
PROPERTIES = parse_properties((FIXTURES / "kafka-3.9.1-config-requests.properties").read_text())

UNEXPECTED_TYPE = "Unexpected resource type {} for resource {}"

# Where Kafka fails with an internal exception or explains nothing, we say what is wrong, and show the id that it meant.
OUR_WORDS: dict[str, list[tuple[int, str]]] = {
    "unknown resource type": [(42, UNEXPECTED_TYPE.format(77, "x"))],
    "topic and unknown type": [(42, UNEXPECTED_TYPE.format(1, "x"))] * 2,
    "append to an unknown key": [(40, "Unknown config name: nonsense")],
    "unknown operation": [(42, "Unknown operations type 9")],
    "broker: append to an unknown key": [
        (40, "Config value append is not allowed for config key: leader.replication.throttled.rate")
    ],
    "broker: cleaner threads": [
        (42, "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    ],
    "loggers: another broker": [(42, "Unexpected node id. Expected 0, but received 4")],
    "broker: too many threads at once": [
        (
            42,
            "Invalid dynamic configuration: Dynamic thread count update validation failed for num.io.threads=100, "
            "value should not be greater than double the current value 9",
        )
    ],
    "broker: too few threads at once": [
        (
            42,
            "Invalid dynamic configuration: Dynamic thread count update validation failed for num.io.threads=2, "
            "value should be at least half the current value 9",
        )
    ],
}


class Store:
    """The part of ZooKeeper that the handlers use. A change takes effect at once, as after its notification."""

    def __init__(self, configs: DynamicConfigs) -> None:
        self.configs = configs
        self.nodes: dict[str, dict[str, str]] = {}
        self.fails = False

    async def get_entity_configs(self, entity_path: str) -> dict[str, str]:
        if self.fails:
            raise CoordinationError("the session is over")
        return dict(self.nodes.get(entity_path, {}))

    async def change_entity_configs(self, entity_path: str, config: Mapping[str, str]) -> None:
        self.nodes[entity_path] = dict(config)
        self.configs.apply(*entity_path.split("/"), config)


def make_broker() -> SimpleNamespace:
    configs = DynamicConfigs(BrokerConfig.from_properties(PROPERTIES))
    return SimpleNamespace(
        check_listeners=lambda _: None,
        broker_id=0,
        dynamic_configs=configs,
        metadata_cache=SimpleNamespace(topics={"t"}, alive_brokers={0: None}),
        zk=SimpleNamespace(configs=Store(configs)),
    )


def ask(broker: SimpleNamespace, api: str, version: int, body: dict[str, Any]) -> Any:
    """Call the handler, and pass its answer through the wire format."""
    context = cast("RequestContext", SimpleNamespace(broker=broker, size_bytes=0))
    match api:
        case "DESCRIBE_CONFIGS":
            answer: Any = asyncio.run(describe_configs(context, describe_request(body)))
        case "ALTER_CONFIGS":
            answer = asyncio.run(alter_configs(context, alter_request(body)))
        case _:
            answer = asyncio.run(incremental_alter_configs(context, incremental_request(body)))
    frame = bytes(encode_response(answer, ApiKey[api], version, 7))
    return decode_response(frame[4:], ApiKey[api], version)[1]


def test_a_resource_that_is_named_very_often_is_described_once() -> None:
    """A request of 10 kB that named a broker 2,000 times took 280 MB."""
    context = cast("RequestContext", SimpleNamespace(broker=make_broker(), size_bytes=0))
    asked = {"resourceType": 4, "resourceName": "0", "configurationKeys": None}
    some = {**asked, "configurationKeys": ["num.io.threads", "log.dirs"]}
    bad = {**asked, "resourceName": "7"}
    whole, partial, *rest = asyncio.run(
        describe_configs(context, describe_request({"resources": [asked, some, asked, some, bad, bad, asked]}))
    ).results
    assert len(whole.configs) > len(partial.configs) == 2
    assert [result.error_code for result in rest] == [0, 0, 42, 42, 0]
    assert rest[0] is rest[4] is whole and rest[1] is partial


@pytest.mark.parametrize(
    ("name", "code"), [("+0", 0), ("00", 0), ("-", 42), ("0_0", 42), (" 0", 42), ("2147483648", 42), ("9" * 5000, 42)]
)
def test_a_broker_is_named_by_what_java_takes_for_an_int(name: str, code: int) -> None:
    """Python takes no number of 5,000 digits: the request ended its connection."""
    asked = {"resourceType": 4, "resourceName": name, "configurationKeys": ["log.dirs"]}
    assert ask(make_broker(), "DESCRIBE_CONFIGS", 4, {"resources": [asked]}).results[0].error_code == code


def describe_request(body: dict[str, Any]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=r["resourceType"],
                resource_name=r["resourceName"],
                configuration_keys=r["configurationKeys"],
            )
            for r in body["resources"]
        ],
        include_synonyms=body.get("includeSynonyms", False),
        include_documentation=body.get("includeDocumentation", False),
    )


def alter_request(body: dict[str, Any]) -> alter_api.AlterConfigsRequest:
    return alter_api.AlterConfigsRequest(
        resources=[
            alter_api.AlterConfigsResource(
                resource_type=r["resourceType"],
                resource_name=r["resourceName"],
                configs=[alter_api.AlterableConfig(name=c["name"], value=c["value"]) for c in r["configs"]],
            )
            for r in body["resources"]
        ],
        validate_only=body["validateOnly"],
    )


def incremental_request(body: dict[str, Any]) -> incremental_api.IncrementalAlterConfigsRequest:
    return incremental_api.IncrementalAlterConfigsRequest(
        resources=[
            incremental_api.AlterConfigsResource(
                resource_type=r["resourceType"],
                resource_name=r["resourceName"],
                configs=[
                    incremental_api.AlterableConfig(
                        name=c["name"], config_operation=c["configOperation"], value=c["value"]
                    )
                    for c in r["configs"]
                ],
            )
            for r in body["resources"]
        ],
        validate_only=body["validateOnly"],
    )


def normalized(message: str | None) -> str | None:
    """Return the message without Scala's name and order of a set, which mean nothing."""
    if message is None:
        return None
    return re.sub(r"(?:Hash)?Set\(([^)]*)\)", lambda match: f"Set({', '.join(sorted(match[1].split(', ')))})", message)


def kafkas_outcomes(exchange: dict[str, Any]) -> list[tuple[int, str | None]]:
    if exchange["name"] in OUR_WORDS:
        return list(OUR_WORDS[exchange["name"]])
    answer = exchange["response"]
    rows = answer["results"] if "results" in answer else answer["responses"]
    return [(row["errorCode"], normalized(row["errorMessage"])) for row in rows]


def kafkas_configs(configs: list[dict[str, Any]], version: int) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for config in sorted(configs, key=lambda config: str(config["name"])):
        row: tuple[object, ...] = (config["name"], config["value"], config["readOnly"], config["isSensitive"])
        if version >= 1:
            row += (config["configSource"], [(s["name"], s["value"], s["source"]) for s in config["synonyms"]])
        if version >= 3:
            row += (config["configType"],)
        rows.append(row)
    return rows


def our_configs(configs: list[Any], version: int) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for config in configs:
        row: tuple[object, ...] = (config.name, config.value, config.read_only, config.is_sensitive)
        if version >= 1:
            row += (config.config_source, [(s.name, s.value, s.source) for s in config.synonyms])
        if version >= 3:
            row += (config.config_type,)
        rows.append(row)
    return rows


@pytest.fixture
def kafka_loggers() -> Iterator[None]:
    """Create the loggers of the recording at their first levels, and restore root's level afterwards."""
    root_level = logging.getLogger().level
    names = ("kafka", "kafka.controller.KafkaController")
    logging.getLogger().setLevel(logging.INFO)
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger("kafka.controller").setLevel(logging.NOTSET)
    yield
    logging.getLogger().setLevel(root_level)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_answers_as_kafka(kafka_loggers: None) -> None:
    """One broker gets all requests in the order of the recording, because each answer depends on earlier changes."""
    broker = make_broker()
    broker.zk.configs.nodes["topics/t"] = {"retention.ms": "5000"}
    for exchange in EXCHANGES[1:]:
        name, version = exchange["name"], exchange["version"]
        answer = ask(broker, exchange["api"], version, exchange["request"])
        rows = answer.results if exchange["api"] == "DESCRIBE_CONFIGS" else answer.responses
        assert [(row.error_code, row.error_message) for row in rows] == kafkas_outcomes(exchange), name
        asked = [(r["resourceType"], r["resourceName"]) for r in exchange["request"]["resources"]]
        assert [(row.resource_type, row.resource_name) for row in rows] == asked, name
        if exchange["api"] == "DESCRIBE_CONFIGS":
            for ours, kafkas in zip(rows, exchange["response"]["results"], strict=True):
                expected = kafkas_configs(kafkas["configs"], version)
                assert sorted(our_configs(ours.configs, version), key=lambda row: str(row[0])) == expected, name


def test_recording_covers_what_matters() -> None:
    codes = {code for exchange in EXCHANGES[1:] for code, _ in kafkas_outcomes(exchange)}
    assert {0, 3, 17, 40, 42} <= codes
    assert {(exchange["api"], exchange["version"]) for exchange in EXCHANGES} >= {
        ("DESCRIBE_CONFIGS", 0),
        ("DESCRIBE_CONFIGS", 1),
        ("DESCRIBE_CONFIGS", 4),
        ("ALTER_CONFIGS", 0),
        ("ALTER_CONFIGS", 2),
        ("INCREMENTAL_ALTER_CONFIGS", 1),
    }


def describe_body(resource_type: int, name: str, keys: list[str] | None, **options: bool) -> dict[str, Any]:
    resource = {"resourceType": resource_type, "resourceName": name, "configurationKeys": keys}
    return {"resources": [resource], **options}


def test_documentation_is_told_on_demand() -> None:
    body = describe_body(2, "t", ["retention.ms"], includeDocumentation=True)
    ((config,),) = [result.configs for result in ask(make_broker(), "DESCRIBE_CONFIGS", 4, body).results]
    assert config.documentation.startswith("Milliseconds that records are kept")
    ((config,),) = [
        result.configs
        for result in ask(make_broker(), "DESCRIBE_CONFIGS", 4, describe_body(4, "0", ["broker.id"])).results
    ]
    assert config.documentation is None


def test_zookeeper_away() -> None:
    broker = make_broker()
    broker.zk.configs.fails = True
    (result,) = ask(broker, "DESCRIBE_CONFIGS", 4, describe_body(2, "t", None)).results
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "the session is over" in result.error_message
    change = {"name": "retention.ms", "configOperation": 0, "value": "5"}
    body = {"resources": [{"resourceType": 2, "resourceName": "t", "configs": [change]}], "validateOnly": False}
    (outcome,) = ask(broker, "INCREMENTAL_ALTER_CONFIGS", 1, body).responses
    assert outcome.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_encrypted_passwords_of_kafka_stay_and_are_never_shown() -> None:
    broker = make_broker()
    secret = "listener.name.plaintext.ssl.keystore.password"
    broker.zk.configs.nodes["brokers/0"] = {secret: "encrypted", "message.max.bytes": "5"}
    change = {"name": "message.max.bytes", "configOperation": 0, "value": "6"}
    body = {"resources": [{"resourceType": 4, "resourceName": "0", "configs": [change]}], "validateOnly": False}
    (outcome,) = ask(broker, "INCREMENTAL_ALTER_CONFIGS", 1, body).responses
    assert outcome.error_code == ErrorCode.NONE
    assert broker.zk.configs.nodes["brokers/0"] == {secret: "encrypted", "message.max.bytes": "6"}
    answer = ask(broker, "DESCRIBE_CONFIGS", 4, describe_body(4, "0", None, includeSynonyms=True))
    assert "encrypted" not in repr(answer)
    assert "opensesame" not in repr(answer)


def test_passwords_are_stored_encrypted() -> None:
    secret = "listener.name.plaintext.ssl.keystore.password"

    def change(broker: SimpleNamespace, name: str, value: str, *, validate_only: bool = False) -> tuple[int, str]:
        setting = {"name": name, "configOperation": 0, "value": value}
        resource = {"resourceType": 4, "resourceName": "0", "configs": [setting]}
        body = {"resources": [resource], "validateOnly": validate_only}
        (outcome,) = ask(broker, "INCREMENTAL_ALTER_CONFIGS", 1, body).responses
        return outcome.error_code, outcome.error_message

    broker = make_broker()
    stored = broker.zk.configs.nodes
    assert change(broker, secret, "opensesame", validate_only=True)[0] == ErrorCode.NONE
    assert stored == {}
    assert change(broker, secret, "opensesame")[0] == ErrorCode.NONE
    text = stored["brokers/0"][secret]
    assert broker.dynamic_configs.password_encoder.decode(text) == "opensesame"
    assert broker.dynamic_configs.current.originals[secret] == "opensesame"
    assert change(broker, "message.max.bytes", "6")[0] == ErrorCode.NONE
    assert stored["brokers/0"] == {secret: text, "message.max.bytes": "6"}
    answer = repr(ask(broker, "DESCRIBE_CONFIGS", 4, describe_body(4, "0", None, includeSynonyms=True)))
    assert "opensesame" not in answer
    assert "encryptedPassword" not in answer
    login = "listener.name.plaintext.plain.sasl.jaas.config"
    code, message = change(broker, login, "opensesame")
    assert (code, "restart broker or create a new listener" in message) == (ErrorCode.INVALID_REQUEST, True)
    kafkas = stored["brokers/0"][login] = broker.dynamic_configs.password_encoder.encode("opensesame")
    broker.dynamic_configs.apply("brokers", "0", stored["brokers/0"])
    assert change(broker, "message.max.bytes", "7")[0] == ErrorCode.NONE
    assert stored["brokers/0"] == {secret: text, login: kafkas, "message.max.bytes": "7"}
    del stored["brokers/0"][login]
    broker.dynamic_configs.apply("brokers", "0", stored["brokers/0"])
    broker.dynamic_configs.password_encoder = None
    refused = change(broker, secret, "another")
    assert refused == (ErrorCode.INVALID_REQUEST, "Password encoder secret not configured")


def test_secrets_do_not_reach_the_log(caplog: pytest.LogCaptureFixture) -> None:
    broker = make_broker()
    change = {"name": "some.unknown.key", "configOperation": 0, "value": "geheim"}
    body = {"resources": [{"resourceType": 4, "resourceName": "0", "configs": [change]}], "validateOnly": False}
    with caplog.at_level(logging.INFO, "kafka.server.ZkAdminManager"):
        ask(broker, "INCREMENTAL_ALTER_CONFIGS", 1, body)
    assert "Updating broker 0 with new configuration : some.unknown.key -> [redacted]" in caplog.text
    assert "geheim" not in caplog.text


@pytest.mark.parametrize(
    ("level", "name"), [(0, "TRACE"), (5, "TRACE"), (10, "DEBUG"), (25, "INFO"), (30, "WARN"), (50, "FATAL")]
)
def test_level_names(level: int, name: str) -> None:
    assert level_name(level) == name


@pytest.mark.parametrize("has_metadata", [False, True])
@pytest.mark.parametrize("api", ["alter", "incremental"])
def test_a_broker_without_metadata_asks_zookeeper_whether_a_topic_exists(api: str, has_metadata: bool) -> None:
    """A starting broker said that a topic is unknown, and no admin client asks again."""
    broker = make_broker()
    broker.metadata_cache = SimpleNamespace(topics=set(), alive_brokers={0: None} if has_metadata else {})
    asked: list[str] = []

    async def exists(topic: str) -> bool:
        asked.append(topic)
        return topic == "t"

    broker.zk.topics = SimpleNamespace(topic_exists=exists)

    def code(topic: str) -> int:
        context: Any = SimpleNamespace(api_version=1, broker=broker, size_bytes=0)
        if api == "alter":
            whole = alter_api.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[])
            answer: Any = asyncio.run(alter_configs(context, alter_api.AlterConfigsRequest(resources=[whole])))
        else:
            single = incremental_api.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[])
            request = incremental_api.IncrementalAlterConfigsRequest(resources=[single])
            answer = asyncio.run(incremental_alter_configs(context, request))
        return cast("int", answer.responses[0].error_code)

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [code("t"), code("none")] == [unknown if has_metadata else ErrorCode.NONE, unknown]
    assert asked == ([] if has_metadata else ["t", "none"]), "the metadata are enough once there are any"
