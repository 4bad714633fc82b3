"""Which user a Kerberos principal is, by Kafka's rules; and which settings of GSSAPI stop a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.broker.security.kerberos import Acceptor, short_name, short_name_rules
from engine.broker.security.sasl_mechanisms import LoginRefused
from engine.common.errors import ConfigError
from engine.kafka.client.jaas import LoginModule


def name_of(principal: str, *rules: str) -> str:
    return short_name(principal, short_name_rules(rules, "REALM.COM"))


# From Kafka's own tests of its rules, and more.
RULES = (
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("principal", "rules", "name"),
    [
        ("App.service-name/example.com@REALM.COM", RULES, "service-name"),
        ("App.service-name@REALM.COM", RULES, "service-name"),
        ("user/host@REALM.COM", RULES, "user"),
        ("plain", RULES, "plain"),
        ("User@REALM.COM", ("RULE:[1:$1]/L",), "user"),
        ("TestABC/host@REALM.COM", ("RULE:[2:$1](Test.*)s/ABC///L",), "test"),
        ("ABC_User_ABC/host@OTHER.COM", ("RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L",), "xyz_user_xyz"),
        ("ABC_User_ABC/host@OTHER.COM", ("RULE:[2:$1](ABC.*)s/ABC/XYZ/L",), "xyz_user_abc"),
        ("user@REALM.COM", ("RULE:[1:$1]/U",), "USER"),
        ("a/b@OTHER.COM", ("RULE:[2:$2.$1-$0]",), "b.a-OTHER.COM"),
        ("a@REALM.COM", ("RULE:[1:x$1](y.*)", "RULE:[1:x$1](x.*)"), "xa"),
        ("anna@REALM.COM", ("RULE:[1:$1]s/(a)(n*)/$2\\$1/",), "nn$1a"),
        ("müller@REALM.COM", ("RULE:[1:$1](\\w+)", "RULE:[1:nobody]"), "nobody"),
        ("user\u0661@REALM.COM", ("RULE:[1:$1](user\\d)", "RULE:[1:nobody]"), "nobody"),
        ("ü1@REALM.COM", ("RULE:[1:$1]s/\\w/x/g",), "üx"),
    ],
)
def test_the_first_rule_that_is_about_a_principal_names_the_user(
    principal: str, rules: tuple[str, ...], name: str
) -> None:
    assert name_of(principal, *rules) == name


@pytest.mark.parametrize(
    ("principal", "rules"),
    [
        ("a@OTHER.COM", ("DEFAULT",)),
        ("a/b@REALM.COM", ("RULE:[1:$1]",)),
        ("a@REALM.COM", ("RULE:[1:$1@$0]", "DEFAULT")),
        ("a/b/c@REALM.COM", ("DEFAULT",)),
        ("a@b@REALM.COM", ("DEFAULT",)),
        ("a@REALM.COM", ("RULE:[1:$1]s/(a)/$2/",)),
        ("a@REALM.COM", ()),
    ],
)
def test_a_principal_that_no_rule_names_is_nobody(principal: str, rules: tuple[str, ...]) -> None:
    with pytest.raises(LoginRefused):
        name_of(principal, *rules)


@pytest.mark.parametrize("rule", ["default", "DEFAULTS", "RULE:[n:$1]", "RULE:[1:$1", "RULE:[1:$2]", "RULE:[1:$1]/X",
                                  "RULE:[1:$1](a[)", "RULE:[1:$1](a)s/a/b", "", "RULE:[2:$1](a)s/*/b/"])  # fmt: skip
def test_a_malformed_rule_stops_the_start(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"principal\.to\.local\.rules"):
        short_name_rules([rule], "REALM.COM")


@pytest.mark.parametrize(
    ("options", "service", "said"),
    [
        ({}, None, "sasl.kerberos.service.name is missing"),
        ({}, "kafka", "needs useKeyTab=true, keyTab and principal"),
        ({"useTicketCache": "true"}, "kafka", "needs useKeyTab=true, keyTab and principal"),
        ({"useKeyTab": "true", "keyTab": "/nowhere/k", "principal": "kafka/h@R"}, "kafka", "no keytab /nowhere/k"),
    ],
)
def test_an_incomplete_login_of_the_broker_stops_the_start(
    options: dict[str, str], service: str | None, said: str
) -> None:
    module = LoginModule("com.sun.security.auth.module.Krb5LoginModule", "required", options)
    with pytest.raises(ConfigError, match=said):
        Acceptor(module, service, ["DEFAULT"])


def test_a_keytab_without_the_principal_stops_the_start(tmp_path: Path) -> None:
    pytest.importorskip("gssapi", exc_type=ImportError)
    keytab = tmp_path / "broker.keytab"
    keytab.write_bytes(b"\x05\x02")
    options = {"useKeyTab": "true", "keyTab": str(keytab), "principal": "kafka/h@R"}
    with pytest.raises(ConfigError, match=r"broker.keytab has no key of kafka/h@R"):
        Acceptor(LoginModule("x", "required", options), "kafka", ["DEFAULT"])
