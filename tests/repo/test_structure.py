"""What the code's structure promises: each state has one owner, settings are read in one way, dependencies are used."""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.broker.log.log import Log
from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.zk.kafka_client import KafkaZkClient

ROOT = Path(__file__).parents[2]
PACKAGES = ("cli", "engine", "klamm", "plans", "tui")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {"pyjwt": "jwt", "pyyaml": "yaml", "aws-msk-iam-sasl-signer-python": "aws_msk_iam_sasl_signer"}
NAMED_TUPLE = {"_replace", "_make", "_fields", "_asdict"}
FOREIGN = {"engine/kafka/zk/session.py": "kazoo"}
"""Modules that use private parts of a library, and of which library."""


@functools.cache
def texts(package: str) -> list[tuple[str, str]]:
    """Return the path and text of every module. A test parses only those it needs: parsing all takes seconds."""
    return [(str(path.relative_to(ROOT)), path.read_text()) for path in sorted((ROOT / package).rglob("*.py"))]


def modules(*packages: str) -> Iterator[tuple[str, str]]:
    for package in packages:
        yield from texts(package)


@pytest.mark.parametrize("kind", [Log, KafkaZkClient])
def test_what_was_made_of_mixins_is_composed(kind: type) -> None:
    assert kind.__bases__ == (object,)


def test_no_class_is_a_mixin() -> None:
    mixins = [
        f"{name}:{kind}"
        for name, text in modules(*PACKAGES)
        for kind in re.findall(r"^ *class (\w*mixin\w*)", text, re.MULTILINE | re.IGNORECASE)
    ]
    assert mixins == []


def test_where_the_last_append_went_has_one_owner() -> None:
    owners = {name for name, text in modules("engine") if "_last_append" in text}
    assert owners == {"engine/broker/log/active_segment.py"}


def test_no_module_touches_the_private_state_of_another() -> None:
    """Only a class and its relatives in one module may, and one module that patches kazoo."""
    touches = []
    for name, text in modules(
        *(f"engine/{part}" for part in ("broker/log", "broker/replication", "broker/controller", "kafka/zk"))
    ):
        own = set(re.findall(r"(?:self\.|def |\")(_\w+)", text)) | NAMED_TUPLE | {"_exit", "_drop_preallocated_tail"}
        touches += [
            f"{name}:{node.lineno} {ast.unparse(node)}"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Attribute)
            and re.match(r"_[a-z]", node.attr)
            and ast.unparse(node.value) not in ("self", "cls")
            and node.attr not in own
            and name not in FOREIGN
        ]
    assert touches == []


def test_a_broker_reads_its_settings_by_attribute() -> None:
    """Only ``engine.kafka.config``, which makes the attributes, reads settings by Kafka's name.

    The properties of a client have some of the same names.
    """
    keys = {*BROKER_CONFIG_DEF.names, *(key.name for key in TOPIC_CONFIG_DEF)}
    apart = (
        "engine/kafka/config/",
        "engine/kafka/client/",
        "engine/kafka/zk/security.py",
        "engine/admin/",
        "engine/local/",
        "engine/spark/",
    )
    named = re.compile("|".join(f'"{re.escape(key)}"' for key in keys))
    reads = []
    for name, text in modules("engine"):
        if name.startswith(apart) or not named.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            read: ast.AST | None = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                read = next(iter(node.args), None)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                read = node.slice
            if isinstance(read, ast.Constant) and read.value in keys:
                reads.append(f"{name}:{node.lineno} {read.value}")
    assert reads == []


@pytest.mark.parametrize("extra", ["", "spark", "plan", "jre", "security", "kerberos", "msk"])
def test_every_dependency_is_imported(extra: str) -> None:
    """A dependency that may be missing can be looked up by its name instead."""
    wanted = PYPROJECT["optional-dependencies"][extra] if extra else PYPROJECT["dependencies"]
    names = {re.split(r"[<>=\[ ;]", requirement)[0].lower() for requirement in wanted}
    either = re.compile(r'^ *import (\w+)|^ *from (\w+)[\w.]* import |"(\w+)"', re.MULTILINE)
    imported = {word for _, text in modules(*PACKAGES) for words in either.findall(text) for word in words}
    assert {name for name in names if IMPORTED_AS.get(name, name) not in imported} == set()


def test_the_classifiers_name_the_python_versions_that_ci_runs() -> None:
    """CI sets KLAMM_REQUIRE. A contributor may have a newer one, on which nobody promises anything yet."""
    prefix = "Programming Language :: Python :: 3."
    named = {
        int(classifier.removeprefix(prefix)) for classifier in PYPROJECT["classifiers"] if classifier.startswith(prefix)
    }
    assert PYPROJECT["requires-python"] == f">=3.{min(named)}"
    if "KLAMM_REQUIRE" in os.environ:
        assert named == {sys.version_info.minor}


def test_no_text_names_a_finding_that_nobody_can_look_up() -> None:
    names = [
        f"{path.relative_to(ROOT)}: {match}"
        for folder in (*PACKAGES, "docs")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".md")
        for match in re.findall(r"\(E\d{1,2}\)", path.read_text())
    ]
    assert names == []
