"""The engine's advice is a value: each interface words it, and without an interface it reads as plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.admin.cluster.advice import advice_for
from engine.admin.cluster.errors import AdminError, BadRequest, Refused
from engine.admin.cluster.remedies import Do, Give, Operation, Parameter, Phrase, Words, words
from engine.admin.cluster.target import Naming, Side, resolve_target
from engine.admin.elections.scope_and_result import scope_of
from engine.admin.health.report import Check
from engine.admin.offsets.selection import parse_offset_time
from engine.admin.reassignment.throttle_settings import Throttle
from engine.admin.topics.changes import TopicAlteration, check_counts
from engine.common.errors import ErrorCode


class Dashboard:
    """An interface with buttons and fields."""

    def operation(self, operation: Operation, value: str | None) -> str:
        return f"[{operation.name}]" if value is None else f"[{operation.name} {value}]"

    def parameter(self, parameter: Parameter) -> str:
        return f"the field {parameter.name}"

    def given(self, parameter: Parameter, value: str | None) -> str:
        return f"{value or 'something'} in the field {parameter.name}"


def on_the_dashboard(said: Words | None) -> str | None:
    return said.spell(Dashboard()) if isinstance(said, Phrase) else said


def failed(error: AdminError) -> tuple[str | None, str | None, str | None]:
    return on_the_dashboard(error.message), on_the_dashboard(error.where), on_the_dashboard(error.hint)


def test_a_dashboard_words_errors_in_its_own_way() -> None:
    with pytest.raises(BadRequest) as count:
        check_counts(0, None)
    assert failed(count.value) == ("the partitions must be greater than 0", "0 in the field PARTITIONS", None)
    with pytest.raises(BadRequest) as lonely:
        scope_of([], [0])
    assert failed(lonely.value) == ("the field PARTITION is only allowed with the field TOPIC", None, None)
    with pytest.raises(BadRequest) as slow:
        Throttle(log_dirs_rate=5).check()
    assert failed(slow.value)[1] == "5 in the field LOG_DIRS_THROTTLE"
    with pytest.raises(BadRequest) as time:
        parse_offset_time("soon")
    assert failed(time.value)[:2] == ("not a time: 'soon'", "the field TIME")
    with pytest.raises(BadRequest) as sideless:
        resolve_target(Naming(bootstrap_servers="h:1", via=Side.ZOOKEEPER), {}, Path("/absent"))
    wants = "zookeeper in the field VIA needs a ZooKeeper"
    assert failed(sideless.value) == (wants, None, "give something in the field ZOOKEEPER too")
    refused = Refused(ErrorCode.INVALID_CONFIG, "Invalid value", where="broker 2")
    assert failed(refused)[2] == "see keys and their values with: [DESCRIBE_ALL_BROKER_CONFIGS 2]"


def test_where_no_face_is_there_an_error_reads_as_plain_words() -> None:
    with pytest.raises(BadRequest) as altered:
        TopicAlteration("t", 4, assignment=((0,), (1,))).check()
    assert str(altered.value) == "replica assignment assigns 2 partitions"
    assert str(altered.value.hint) == "give partitions=2 with it"
    refused = Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert str(refused.hint) == "list the topics"
    assert str(Phrase("look: ", Do(Operation.DESCRIBE_TOPIC, "orders"))) == "look: the description of the topic orders"


def test_no_advice_spells_what_only_a_command_line_has() -> None:
    said = [check.advice for check in Check] + [advice_for(code) for code in ErrorCode]
    for advice in filter(None, said):
        for text in (str(advice), on_the_dashboard(advice) or ""):
            assert text
            assert "--" not in text
            assert not text.startswith("klamm ")
            assert ": klamm " not in text


def test_a_setting_that_counts_for_one_listener_is_spelled_with_it() -> None:
    said = "These security configs can be dynamically updated only per-listener using the listener prefix: "
    for keys in (
        "HashSet(ssl.truststore.location)",
        "Set(ssl.truststore.location)",
        "ssl.truststore.location, ssl.keystore.location",
    ):
        refused = Refused(ErrorCode.INVALID_REQUEST, f"{said}{keys}", where="broker 0")
        assert str(refused.hint).endswith(": listener.name.LISTENER.ssl.truststore.location")


def test_phrases_are_put_together_flat() -> None:
    inner = Phrase("give ", Give(Parameter.TIMEOUT))
    assert Phrase(inner, " or ", Operation.LIST_TOPICS).parts == (
        "give ",
        Give(Parameter.TIMEOUT),
        " or ",
        Operation.LIST_TOPICS,
    )
    assert words("as it is") == "as it is"
    assert words(inner) is inner
    assert words(Parameter.TOPIC) == Phrase(Parameter.TOPIC)


@pytest.mark.parametrize("kind", [Operation, Parameter])
def test_no_two_of_a_kind_read_alike(kind: type[Operation] | type[Parameter]) -> None:
    """Two enum members with the same value would be the same member."""
    assert list(kind.__members__) == [status.name for status in kind]
