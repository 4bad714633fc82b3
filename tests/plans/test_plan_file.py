"""The plan file: the same bytes after a round trip, Kafka's part of it, and errors that name the place."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from plans.errors import BadPlanFile
from plans.options import Aim, BrokerCapacity, LogDirCapacity, Minimise, PlanOptions, Replacement, Strategy
from plans.plan_file import Envelope, PlanEntry, PlanFile, decode_plan, encode_plan, plan_schema, plan_schema_text
from plans.score import Bounds, BrokerScore, LogDirScore, Measures, Score

SCHEMA_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "plan.schema.json"
MEASURES = Measures(2, 1, 0.25, 0, 3)
SCORE = Score(
    moves=1,
    bytes=10,
    leader_changes=1,
    reordered=0,
    remaining_moves=0,
    lower_bound=Bounds(1, 10, 0),
    gap=0.0,
    is_optimal=True,
    solver="highs",
    makespan_s=2.5,
    before=MEASURES,
    after=replace(MEASURES, bytes_cv=None),
    brokers=(BrokerScore(1, "a", True, 1, 0, 1, 0, 10, 0, 0, 1, 0, 10, None),),
    log_dirs=(LogDirScore(1, "/d", None, 5, 1, 0, 10, 0, 0, 1, 0, 10),),
)
OPTIONS = PlanOptions(
    brokers=(1,),
    replacements=(Replacement(1, 2),),
    aim=(Aim.REPLICAS, Aim.BYTES),
    topics=("é.*",),
    minimise=Minimise.BYTES,
    broker_capacities=(BrokerCapacity(1, 100),),
    log_dir_capacities=(LogDirCapacity(1, "/d", 50),),
    throttle=4,
)
PLAN = PlanFile(
    version=1,
    partitions=(PlanEntry("é", 0, (2, 3), ("any", "/d")),),
    klamm=Envelope(
        format=1,
        cluster_id="c",
        input_digest="sha256:0",
        strategy=Strategy.LOG_DIRS,
        options=OPTIONS,
        score=SCORE,
        rollback=(PlanEntry("é", 0, (1, 3), ("any", "any")),),
        throttle=4,
    ),
)


def document() -> dict:
    return json.loads(encode_plan(PLAN))


def test_a_plan_comes_back_as_it_was() -> None:
    text = encode_plan(PLAN)
    assert decode_plan(text) == PLAN
    assert encode_plan(decode_plan(text)) == text


def test_kafkas_part_stands_first_and_a_partition_has_a_line() -> None:
    text = encode_plan(PLAN)
    assert list(document()) == ["version", "partitions", "klamm"]
    assert '{"topic": "é", "partition": 0, "replicas": [2, 3], "log_dirs": ["any", "/d"]}' in [
        line.strip() for line in text.splitlines()
    ]


def test_the_schema_page_is_true_and_takes_a_plan() -> None:
    assert SCHEMA_PAGE.read_text("utf-8") == plan_schema_text()
    jsonschema.Draft202012Validator(plan_schema()).validate(document())


def _edited(place: str, value: object) -> str:
    edited = document()
    *path, last = place.split("/")
    node = edited
    for key in path:
        node = node[int(key) if isinstance(node, list) else key]
    node[int(last) if isinstance(node, list) else last] = value
    return json.dumps(edited)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("version", 2, "version: must be 1, not 2"),
        ("klamm/format", 7, "klamm.format: this klamm reads format 1, not 7"),
        ("klamm", None, "klamm: missing, this is a plain reassignment file"),
        ("klamm/strategy", "shuffle", "klamm.strategy: must be one of rebalance, "),
        ("klamm/score/moves", "3", 'klamm.score.moves: must be a whole number, not "3"'),
        ("klamm/score/moves", True, "klamm.score.moves: must be a whole number, not true"),
        ("klamm/score/gap", float("inf"), "klamm.score.gap: must be a number, not Infinity"),
        ("klamm/score/extra", 1, "klamm.score.extra: unknown key"),
        ("klamm/score/brokers/0/alive", 1, "klamm.score.brokers[0].alive: must be true or false, not 1"),
        ("klamm/throttle", 0, "klamm.throttle: must be 1 or more bytes a second, not 0"),
        ("klamm/rollback", [], "klamm.rollback: it does not have the partitions of the plan"),
        ("partitions", {}, "partitions: must be a list, not {}"),
        ("partitions/0/replicas", [2, "3"], 'partitions[0].replicas[1]: must be a whole number, not "3"'),
        ("partitions/0/replicas", [2, 2], "partitions[0].replicas: a broker appears twice"),
        (
            "partitions/0/replicas",
            [-1, 2],
            "partitions[0].replicas: must have at least one broker id, and none below 0",
        ),
        ("partitions/0/replicas", [], "partitions[0].replicas: must have at least one broker id, and none below 0"),
        ("partitions/0/partition", -1, "partitions[0].partition: -1 is not a partition"),
        ("partitions/0/log_dirs", ["any"], "partitions[0].log_dirs: must have one for each replica"),
    ],
)
def test_an_edited_file_is_refused_with_the_place(place: str, value: object, message: str) -> None:
    with pytest.raises(BadPlanFile) as caught:
        decode_plan(_edited(place, value))
    assert str(caught.value).startswith(message)
    assert caught.value.hint


def test_a_missing_key_is_named() -> None:
    edited = document()
    del edited["klamm"]["score"]["gap"]
    with pytest.raises(BadPlanFile, match=r"^klamm\.score\.gap: missing"):
        decode_plan(json.dumps(edited))


def test_a_partition_that_stands_twice_is_named() -> None:
    edited = document()
    edited["partitions"] *= 2
    with pytest.raises(BadPlanFile, match=r"^partitions\[1\]: é-0 is in partitions\[0\] already"):
        decode_plan(json.dumps(edited))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: "),
        ("[" * 200_000, "not JSON: "),
        ("[]", "not a JSON object"),
        ('{"version": 1, "version": 1}', "not JSON: the key 'version' appears twice"),
    ],
)
def test_what_is_no_plan_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadPlanFile, match=message):
        decode_plan(text)
