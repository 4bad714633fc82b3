"""Access rules in words: options, files, explanations and what is odd about rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest

from engine.admin.acls.checks import explain, lint
from engine.admin.acls.files import compare, file_text, read_acl_file
from engine.admin.acls.values import AclRow, Wish, parse_operation, parse_resource, rule_of
from engine.admin.cluster.errors import BadRequest
from engine.common.acl import AclOperation, ResourceType
from engine.kafka.acls import AclBinding, AclFilter, Permission

TOPIC, GROUP = (ResourceType.TOPIC, "t"), (ResourceType.GROUP, "g")
ALICE = ("User:alice",)


def rule(text: str) -> AclBinding:
    """Read ``allow User:alice read topic:orders~ [HOST]``; ``~`` makes a prefix."""
    permission, who, operation, resource, *host = text.split()
    kind, name = parse_resource(resource.removesuffix("~"))
    pattern = "prefixed" if resource.endswith("~") else "literal"
    words = "cluster" if kind is ResourceType.CLUSTER else resource.partition(":")[0]
    return rule_of(AclRow(words, name, pattern, who, host[0] if host else "*", operation, permission))


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (Wish((TOPIC,)), "whom"),
        (Wish((), allow_principals=ALICE), "on which resources"),
        (Wish((TOPIC,), allow_principals=("alice",)), "not a principal"),
        (Wish((TOPIC,), "any", allow_principals=ALICE), "literal names or prefixes"),
        (Wish((TOPIC,), "odd", allow_principals=ALICE), "no such type of pattern"),
        (Wish((GROUP,), allow_principals=ALICE, operations=(AclOperation.WRITE,)), "write does not apply to a group"),
        (Wish((GROUP,), allow_principals=ALICE, is_producer=True), "needs a topic"),
        (Wish((TOPIC,), allow_principals=ALICE, is_consumer=True), "needs a group"),
        (Wish((TOPIC,), deny_principals=ALICE, is_producer=True), "deny nothing"),
        (Wish((TOPIC,), allow_principals=ALICE, is_idempotent=True), "only a producer"),
        (
            Wish((TOPIC, GROUP, (ResourceType.CLUSTER, "kafka-cluster")), is_consumer=True, allow_principals=ALICE),
            "only",
        ),
        (Wish(((ResourceType.CLUSTER, "kafka-cluster"),), "prefixed", allow_principals=ALICE), "a literal one"),
    ],
)
def test_what_cannot_be_added(wish: Wish, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        wish.rules()


def test_whoever_names_nobody_removes_all_rules_of_the_resources() -> None:
    assert Wish((TOPIC, GROUP)).removals() == [AclFilter(*TOPIC), AclFilter(*GROUP)]
    (wish,) = Wish((TOPIC,), allow_principals=ALICE).removals()
    assert (wish.principal, wish.operation, wish.permission) == (*ALICE, AclOperation.ALL, Permission.ALLOW)
    assert Wish((TOPIC,), "match").removals() == [AclFilter(*TOPIC, None, matches_name=True)]
    assert Wish(principals=ALICE).filters() == [AclFilter(pattern_type=None, principal="User:alice")]
    with pytest.raises(BadRequest, match="on which resources"):
        Wish().removals()


def test_all_rules_of_a_principal_are_removed_by_its_name_alone() -> None:
    assert Wish(principals=ALICE).removals() == [AclFilter(pattern_type=None, principal="User:alice")]
    assert Wish((TOPIC,), principals=ALICE).removals() == [AclFilter(*TOPIC, principal="User:alice")]
    for more in ({"operations": (AclOperation.READ,)}, {"allow_principals": ALICE}, {"deny_hosts": ("1.2.3.4",)}):
        with pytest.raises(BadRequest, match="only resources"):
            Wish((TOPIC,), principals=ALICE, **more).removals()  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="prefixed says how names of resources match, and none is named"):
        Wish(principals=ALICE, pattern_type="prefixed").removals()


def test_words() -> None:
    assert parse_operation("Describe_Configs") is parse_operation("describeconfigs") is AclOperation.DESCRIBE_CONFIGS
    assert parse_resource("cluster") == parse_resource("cluster:kafka-cluster")
    assert parse_resource("topic:a:b") == (ResourceType.TOPIC, "a:b")
    for odd in ("topic", "topic:", "thing:x", "cluster:other"):
        with pytest.raises(BadRequest, match="not a resource"):
            parse_resource(odd)
    with pytest.raises(BadRequest, match="no such operation: fly"):
        parse_operation("fly")
    assert str(AclRow.of(rule("deny User:eve all topic:or~ 1.2.3.4"))) == (
        "deny User:eve from 1.2.3.4 all on topics that begin with or"
    )


def test_why_somebody_may() -> None:
    rules = [rule("allow User:alice read topic:orders"), rule("deny User:alice describe topic:ord~")]

    def told(operation: str, who: str = "User:alice", name: str = "orders") -> tuple[bool, str]:
        explanation = explain(rules, who, "1.2.3.4", parse_operation(operation), ResourceType.TOPIC, name)
        return explanation.allowed, explanation.because

    assert told("read") == (True, "a rule says: allow User:alice read on topic orders")
    assert told("describe") == (False, "a rule says: deny User:alice describe on topics that begin with ord")
    assert told("read", "User:bob")[1].startswith("topic orders has rules, and none allows this")
    assert told("read", name="other")[1].startswith("no rule is about topic other")
    implied = explain(rules[:1], "User:alice", "1.2.3.4", AclOperation.DESCRIBE, ResourceType.TOPIC, "orders")
    assert implied.allowed and implied.because.endswith("read implies describe")


@pytest.mark.parametrize(
    ("files", "name", "is_allowed", "said"),
    [
        (None, "other", False, "only the brokers' files (super.users) say who is one"),
        ({}, "other", False, "no rule is about topic other: nobody may"),
        ({}, "orders", False, "topic orders has rules, and none allows this"),
        ({"super.users": None}, "orders", False, "brokers do not show who (super.users)"),
        ({"super.users": "User:root;User:bob"}, "orders", True, "User:bob is a super user, by super.users"),
        ({"super.users": "User:root"}, "orders", False, "topic orders has rules, and none allows this"),
        ({"allow.everyone.if.no.acl.found": None}, "other", False, "it is set; brokers do not show to what"),
        ({"allow.everyone.if.no.acl.found": "true"}, "other", True, "and allow.everyone.if.no.acl.found=true"),
        ({"allow.everyone.if.no.acl.found": "true"}, "orders", False, "topic orders has rules, and none allows this"),
        ({"allow.everyone.if.no.acl.found": "false"}, "other", False, "and allow.everyone.if.no.acl.found=false"),
    ],
)
def test_what_brokers_files_add_to_the_rules(
    files: dict[str, str | None] | None, name: str, is_allowed: bool, said: str
) -> None:
    rules = [rule("allow User:alice read topic:orders")]
    explanation = explain(rules, "User:bob", "1.2.3.4", AclOperation.READ, ResourceType.TOPIC, name, files)
    assert (explanation.allowed, said in explanation.because) == (is_allowed, True), explanation.because


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (["allow User:* all topic:*"], "opens_everything"),
        (["allow User:* alter cluster"], "opens_everything"),
        (["allow User:* read topic:*"], None),
        (["allow User:* all topic:public"], None),
        (["deny User:* all topic:*"], None),
        (["allow User:* all topic:* 10.0.0.1"], None),
        (["allow User:alice read topic:orders-*"], "never_matches"),
        (["allow User:al* read topic:orders"], "never_matches"),
        (["allow user:alice read topic:orders"], "never_matches"),
        (["allow User:alice read topic:orders host.example"], "never_matches"),
        (["allow User:alice read topic:orders 10.0.0.0/8"], "never_matches"),
        (["allow User:alice read topic:orders ::1"], None),
        (["allow User:alice read topic:orders", "deny User:* read topic:o~"], "shadowed"),
        (["allow User:alice read topic:orders", "deny User:alice describe topic:orders"], None),
        (["allow User:alice all topic:orders", "deny User:alice read topic:orders"], None),
        (["allow User:alice read topic:orders", "deny User:alice read topic:orders 10.0.0.1"], None),
        (["allow User:alice read topic:orders", "allow User:alice all topic:o~"], "redundant"),
        (["allow User:alice describe topic:orders", "allow User:alice read topic:orders"], "redundant"),
        (["deny User:alice describe topic:orders", "deny User:alice read topic:orders"], None),
        (["allow User:alice read topic:*", "allow User:alice read topic:o~"], "redundant"),
        (["allow User:alice read topic:orders", "allow User:bob read topic:orders"], None),
        (["allow User:alice read topic:orders", "allow User:alice read group:orders"], None),
    ],
)
def test_what_is_odd(said: list[str], problem: str | None) -> None:
    assert [finding.problem.value for finding in lint([rule(text) for text in said])] == [problem] * (
        problem is not None
    )


def test_an_ipv6_address_is_written_as_brokers_write_it() -> None:
    long = "0:0:0:0:0:0:0:1"
    wish = Wish((TOPIC,), allow_principals=ALICE, allow_hosts=("::1",), operations=(AclOperation.READ,))
    (added,) = wish.rules()
    assert (added.entry.host, lint([added])) == (long, [])
    assert rule("allow User:alice read topic:t ::1") == added
    (warning,) = lint([replace(added, entry=replace(added.entry, host="::1"))])
    assert (warning.problem.value, long in warning.because) == ("never_matches", True)
    assert explain([added], "User:alice", "::1", AclOperation.READ, *TOPIC).allowed


@pytest.mark.parametrize("is_one_topic", [False, True])
def test_many_rules_are_checked_in_time_by_their_number(is_one_topic: bool) -> None:
    """By the square of their number it would be minutes."""
    rules = [
        rule(f"allow User:u{number} read topic:{'t' if is_one_topic else f't{number:0{1 + number % 40}}~'}")
        for number in range(20_000)
    ]
    begun_s = process_time()
    lint(rules)
    assert process_time() - begun_s < 15


def test_a_file_comes_back_as_it_was_and_says_where_it_is_wrong(tmp_path: Path) -> None:
    rules = [rule("allow User:alice read topic:orders~"), rule("deny User:* alter cluster 1.2.3.4")]
    path = tmp_path / "acls.yaml"
    path.write_text(file_text(rules))
    assert read_acl_file(path) == rules
    short = "acls: [{resource_type: topic, name: t, principal: User:u, operation: [read, write]}]"
    path.write_text(short)
    assert read_acl_file(path) == [rule("allow User:u read topic:t"), rule("allow User:u write topic:t")]
    for text, message in {
        "acls: {": "not YAML",
        "rules: []": "no list of rules",
        "acls: [3]": "not a rule",
        short.replace("name", "nmae"): "unknown key nmae",
        short.replace("principal: User:u, ", ""): "principal is missing",
        short.replace("[read, write]", "fly"): "no such operation: fly",
        short.replace("name: t", "name: t, permission: maybe"): "allow or deny",
        short.replace("name: t", "name: t, pattern_type: regex"): "literal or prefixed",
        short.replace("topic", "thing"): "not a resource",
    }.items():
        path.write_text(text)
        with pytest.raises(BadRequest, match=message) as refused:
            read_acl_file(path)
        assert "acls.yaml" in str(refused.value.where)


def test_a_file_is_compared_with_a_cluster() -> None:
    a, b, c = (rule(f"allow User:{who} read topic:t") for who in "abc")
    differences = compare([b, a], [c, b])
    assert (differences.missing, differences.extra) == ((a,), (c,))
