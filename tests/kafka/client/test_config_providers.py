"""Values that stand in the environment or in other files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.common.errors import ConfigError
from engine.kafka.client.config_providers import FILE_BYTES_MAX, resolve_references

CLASSES = "org.apache.kafka.common.config.provider."


def test_each_provider(tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text("user=alice\npassword=s3cret\n")
    (tmp_path / "password").write_text("other")
    properties = {
        "a": "${env:NAME}!",
        "b": f"${{file:{tmp_path}/secrets.properties:user}}/${{file:{tmp_path}/secrets.properties:password}}",
        "c": f"${{directory:{tmp_path}:password}}",
        "d": "${unknown:x} $ {} ${plain}",
        "e": "${" + ":" * 100_000,
    }
    resolved = {"a": "n!", "b": "alice/s3cret", "c": "other", "d": properties["d"], "e": properties["e"]}
    assert resolve_references(properties, {"NAME": "n"}) == resolved


def test_declared_under_another_name() -> None:
    properties = {
        "config.providers": "mine",
        "config.providers.mine.class": CLASSES + "EnvVarConfigProvider",
        "a": "${mine:X}",
    }
    assert resolve_references(properties, {"X": "1"})["a"] == "1"
    with pytest.raises(ConfigError, match=r"config.providers.mine.class=com.example.Vault"):
        resolve_references({**properties, "config.providers.mine.class": "com.example.Vault"}, {})


def test_a_broker_knows_only_what_its_file_declares() -> None:
    """As in Kafka, where nothing is known without a declaration."""
    declared = {"config.providers": "mine", "config.providers.mine.class": CLASSES + "EnvVarConfigProvider"}
    properties = {"a": "${mine:X}", "b": "${env:X}"}
    assert resolve_references(properties, {"X": "1"}, declared=declared) == {"a": "1", "b": "${env:X}"}
    assert resolve_references(properties, {"X": "1"}, declared={}) == properties


def test_a_broker_reads_small_files_only(tmp_path: Path) -> None:
    """Whoever may alter its settings may name any file, and the event loop waits for it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "small").write_text(f"a={'x' * (FILE_BYTES_MAX - 2)}")
    (tmp_path / "large").write_text(f"a={'x' * (FILE_BYTES_MAX - 1)}")
    for provider, reference in (("File", "{folder}/{name}:a"), ("Directory", "{folder}:{name}")):
        declared = {"config.providers": "p", "config.providers.p.class": f"{CLASSES}{provider}ConfigProvider"}

        def read(folder: Path | str, name: str, declared: dict[str, str] = declared, what: str = reference) -> str:
            properties = {"key": f"${{p:{what.format(folder=folder, name=name)}}}"}
            return resolve_references(properties, {}, declared=declared)["key"]

        assert read(tmp_path, "small")[-1] == "x"
        for folder, name in ((tmp_path, "large"), (tmp_path, "pipe"), ("/dev", "zero"), (tmp_path, ".")):
            with pytest.raises(ConfigError, match=r"not a regular file of at most 1 MB: key=|not the name of a file"):
                read(folder, name)
        with pytest.raises(ConfigError, match="the file cannot be read"):
            read(f"{tmp_path}\0", "small")


def test_what_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a=s3cret\n")
    for value, message in (
        ("${env:ABSENT}", r"no such environment variable: key=\$\{env:ABSENT\}"),
        (f"${{file:{tmp_path}/absent:a}}", "cannot be read"),
        (f"${{file:{tmp_path}/file:b}}", "has no such key"),
        (f"${{directory:{tmp_path}:../file}}", "not the name of a file"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            resolve_references({"key": value}, {})
        assert "s3cret" not in str(caught.value)


def test_limits(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a=1\n")
    properties = {
        "config.providers.file.param.allowed.paths": str(tmp_path / "other"),
        "k": f"${{file:{tmp_path}/file:a}}",
    }
    with pytest.raises(ConfigError, match=r"not below allowed\.paths"):
        resolve_references(properties, {})
    limit = {"config.providers.env.param.allowlist.pattern": "KAFKA_.*", "k": "${env:PATH}"}
    with pytest.raises(ConfigError, match="no such environment variable"):
        resolve_references(limit, {"PATH": "x"})
    limit |= {"config.providers.env.param.allowlist.pattern": "*"}
    with pytest.raises(ConfigError, match=r"allowlist\.pattern is not a regular expression \(.*\): k=\$\{env:PATH\}"):
        resolve_references(limit, {"PATH": "x"})
