"""Login modules as Java reads them."""

from __future__ import annotations

from contextlib import suppress
from time import process_time

import pytest

from engine.common.errors import ConfigError
from engine.kafka.client.jaas import parse_jaas_config, parse_jaas_file

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('username="alice" password="p";', {"username": "alice", "password": "p"}),
        ("username='alice' password=secret;", {"username": "alice", "password": "secret"}),
        (r'password="a\"b\\c\tz\101";', {"password": 'a"b\\c\tzA'}),
        ('username="a;b=c" /* not this="x" */ password="//";', {"username": "a;b=c", "password": "//"}),
        ('username = "a"\n// a comment\npassword\n=\n"b" ;', {"username": "a", "password": "b"}),
        (";", {}),
    ],
)
def test_options(text: str, options: dict[str, str]) -> None:
    module = parse_jaas_config(f"{PLAIN} required {text}")
    assert (module.class_name, module.flag, module.options) == (PLAIN, "required", options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{PLAIN} required password="s3cret"', "';' is missing"),
        (f"{PLAIN} required password=12;", "option 1 has no value: put values"),
        (f'{PLAIN} required password "s3cret";', "option 1 has no value: put values"),
        (f'{PLAIN} required username="u" password="a"s3cret";', "option 3 has no value"),
        (f"{PLAIN} required password=a s3cret;", "option 2 has no value"),
        (f"{PLAIN} required password=a s3cret=;", "option 2 has no value"),
        (f"{PLAIN} required password=a; s3cret more;", "more than one"),
        (f'{PLAIN} required password="s3cret;', "';' is missing"),
        (f"{PLAIN} required password=s3cret /* ;", "';' is missing"),
        (f"{PLAIN} needed;", "control flag"),
        (f'{PLAIN} required password="s3cret"; {PLAIN} required;', "more than one"),
        ("", "class is missing"),
    ],
)
def test_what_is_malformed_is_said_without_its_values(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_jaas_config(text)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("repeated", ['a="b" ', r"\"", "'\n", "/* ", "//", f"; {PLAIN} required "])
def test_a_long_text_takes_time_by_its_length(repeated: str) -> None:
    """By the square of its length it would be minutes."""
    begun_s = process_time()
    with suppress(ConfigError):
        parse_jaas_file(f"Client {{ {PLAIN} required {repeated * 200_000}")
    assert process_time() - begun_s < 10


def test_a_file_has_sections() -> None:
    sections = parse_jaas_file(f'KafkaClient {{ {PLAIN} required username="a"; }};\nClient {{ {PLAIN} optional; }};')
    assert {name: [module.flag for module in section] for name, section in sections.items()} == {
        "KafkaClient": ["required"],
        "Client": ["optional"],
    }
    with pytest.raises(ConfigError, match="'}' is missing at the end of Client"):
        parse_jaas_file(f"Client {{ {PLAIN} required;")


def test_a_module_s_repr_holds_no_password() -> None:
    assert "s3cret" not in repr(parse_jaas_config(f'{PLAIN} required password="s3cret";'))
