"""Passwords in ZooKeeper: klamm reads what Kafka encrypted, and nothing passes for a password that is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.common.errors import ConfigError
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import DynamicConfigs
from engine.kafka.config.password_encoder import PasswordEncoder, decoded, encoded, encoded_anew

KAFKAS = json.loads(
    (Path(__file__).parents[3] / "fixtures/config/kafka-3.9.1-encrypted-passwords.json").read_text("utf-8")
)
KEYSTORE = "listener.name.safe.ssl.keystore.password"
GCM = PasswordEncoder("s", "PBKDF2WithHmacSHA256", "AES/GCM/NoPadding", 256, 1024)


@pytest.mark.parametrize("row", KAFKAS, ids=["default", "gcm", "sha1"])
def test_what_kafka_encrypted_is_read(row: dict[str, str]) -> None:
    assert PasswordEncoder(row["secret"]).decode(row["text"]) == row["password"]


@pytest.mark.parametrize("encoder", [PasswordEncoder("s"), GCM], ids=["cbc", "gcm"])
@pytest.mark.parametrize("password", ["", "a", "p" * 16, "pässword-😀, with: signs"])
def test_what_is_encrypted_is_read_again_and_each_time_another_text(encoder: PasswordEncoder, password: str) -> None:
    texts = [encoder.encode(password) for _ in range(2)]
    assert [encoder.decode(text) for text in texts] == [password, password]
    assert texts[0] != texts[1]
    assert "s" not in repr(encoder).split("(")[1]


@pytest.mark.parametrize("row", KAFKAS, ids=["default", "gcm", "sha1"])
def test_another_secret(row: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"encrypted with another password\.encoder\.secret"):
        PasswordEncoder("other").decode(row["text"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("passwordLength:11", "passwordLength:12"), "another password.encoder.secret"),
        (
            ("AES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding"),
            "does not know the cipher DES/CBC/PKCS5Padding",
        ),
        (("PBKDF2WithHmacSHA512", "PBEWithMD5AndDES"), "does not know the key factory PBEWithMD5AndDES"),
        (("iterations:4096", "iterations:99999999999"), "99,999,999,999 rounds for one password"),
        (("iterations:4096", "iterations:many"), "another password.encoder.secret"),
        (("salt:", "pepper:"), "as Kafka does it: 'salt' is missing"),
    ],
)
def test_damaged_texts(change: tuple[str, str], message: str) -> None:
    text = KAFKAS[0]["text"]
    assert change[0] in text
    with pytest.raises(ConfigError, match=message):
        PasswordEncoder(KAFKAS[0]["secret"]).decode(text.replace(*change))


def test_a_key_that_the_cipher_does_not_take_is_named() -> None:
    with pytest.raises(ConfigError, match="no key of 64 bits: use 128, 192 or 256"):
        PasswordEncoder("s", key_length_bits=64).encode("changeit")


def test_a_clear_text_is_not_used_as_a_password() -> None:
    clear, problems = decoded({KEYSTORE: "changeit", "num.io.threads": "9"}, PasswordEncoder("s"))
    assert clear == {"num.io.threads": "9"}
    assert [KEYSTORE in problem and "changeit" not in problem for problem in problems] == [True]


def test_without_a_secret_no_password_is_stored_or_read() -> None:
    with pytest.raises(ConfigError, match="Password encoder secret not configured"):
        encoded({KEYSTORE: "changeit"}, None)
    assert encoded({"num.io.threads": "9"}, None) == {"num.io.threads": "9"}
    assert decoded({KEYSTORE: KAFKAS[0]["text"]}, None) == (
        {},
        [f"{KEYSTORE} is ignored: Password encoder secret not configured"],
    )


def test_a_password_that_stays_keeps_its_text() -> None:
    encoder = PasswordEncoder("s")
    stored = encoded({KEYSTORE: "one"}, encoder)
    assert encoded({KEYSTORE: "one"}, encoder, stored) == stored
    assert encoder.decode(encoded({KEYSTORE: "two"}, encoder, stored)[KEYSTORE]) == "two"


def test_the_old_secret_is_replaced_where_it_was_used() -> None:
    old, new = PasswordEncoder("old"), PasswordEncoder("new")
    by_new = new.encode("b")
    stored = {KEYSTORE: old.encode("a"), "listener.name.two.ssl.key.password": by_new, "num.io.threads": "9"}
    anew = encoded_anew(stored, old, new)
    assert decoded(anew, new)[0] == {
        KEYSTORE: "a",
        "listener.name.two.ssl.key.password": "b",
        "num.io.threads": "9",
    }
    assert anew["listener.name.two.ssl.key.password"] == by_new


def test_a_running_broker_uses_what_zookeeper_has() -> None:
    static = {"zookeeper.connect": "z:1", "broker.id": "0", "password.encoder.secret": "s"}
    configs = DynamicConfigs(BrokerConfig(static))
    stored = encoded({KEYSTORE: "changeit"}, configs.password_encoder)
    assert configs.apply("brokers", "0", stored) == []
    assert configs.current.originals[KEYSTORE] == "changeit"
    other = DynamicConfigs(BrokerConfig({**static, "password.encoder.secret": "t"}))
    assert [KEYSTORE in problem for problem in other.apply("brokers", "0", stored)] == [True]
    assert KEYSTORE not in other.current.originals
