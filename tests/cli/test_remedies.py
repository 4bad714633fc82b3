"""The engine's advice in the command line's words: these exist, and only the command line spells them."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer._click.core import Command, Context

import engine.admin
from cli.framework.failure import failure_of
from cli.framework.invocation import Invocation, TargetOptions
from cli.framework.remedies import COMMANDS, OPTIONS, spelled
from cli.framework.root import load
from cli.framework.talk import Talk
from cli.main import root_command
from cli.output.format import OutputFormat
from cli.output.report import Advice, Report, Table
from cli.table_of_commands import ENTRIES
from cli.views.health import health_report
from cli.views.records_deletion import deletions_report
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Do, Give, Operation, Parameter, Phrase, words
from engine.admin.configs.values import Entity, EntityType, not_set
from engine.admin.health.report import Check, HealthStatus, report_of
from engine.admin.records.deletion import DeletionResult, RecordsDeletion

_NAMES = "|".join(name for entry in ENTRIES for name in (entry.name, *entry.aliases))
_SPELLED = re.compile(rf"--[A-Za-z]|(?<![\w-])-[A-Za-z](?![\w-])|\bklamm (?:{_NAMES})\b")


def spelled_in(source: str) -> list[tuple[int, str]]:
    """Return the strings of a module that contain an option or a command, by line; docstrings may contain them."""
    tree = ast.parse(source)
    documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [(line, text) for line, text in _strings(tree, documentation) if _SPELLED.search(text)]


def _strings(tree: ast.AST, documentation: set[ast.expr]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            # The inserted value may be the name of an option.
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
            yield node.lineno, node.value


def test_strings_that_spell_an_option_are_found() -> None:
    spellings = [
        'raise BadRequest("give --topic NAME")',
        'hint = f"--{name} is wrong"',
        'hint = f"look: klamm topics describe {topic}"',
        'hint = ("klamm " "elect unclean")',
        'where="-o json"',
    ]
    passed = [
        '"""Return the scope that ``--group`` names."""',
        'hint = "no mark says that klamm set it"',
        'hint = "-1 means the end"  # --time',
        'name = "kafka-topics"',
    ]
    assert [line for line in spellings if not spelled_in(line)] == []
    assert [line for line in passed if spelled_in(line)] == []


def test_nothing_in_the_engine_spells_an_option_or_a_command() -> None:
    folder = Path(engine.admin.__path__[0])
    sources = sorted(folder.rglob("*.py"))
    assert len(sources) > 100
    spellings = [
        f"{path.relative_to(folder)}:{line}: {text}"
        for path in sources
        for line, text in spelled_in(path.read_text("utf-8"))
    ]
    assert spellings == [], "name an Operation or a Parameter in a Phrase; cli.framework.remedies spells it"


def _commands() -> Iterator[Command]:
    for entry in ENTRIES:
        command: Any = load(entry)
        yield from getattr(command, "commands", {"": command}).values()


EVERY_OPTION: dict[str, list[Any]] = {}
for _command in _commands():
    for _param in _command.params:
        for _name in (*_param.opts, *_param.secondary_opts):
            EVERY_OPTION.setdefault(_name, []).append(_param)


def resolved(line: str) -> tuple[Command, list[str]]:
    """Return the command that a line names, and the words after its name."""
    program, *rest = shlex.split(line)
    assert program == "klamm"
    command: Any = root_command()
    while hasattr(command, "get_command"):
        name = rest.pop(0)
        subcommand = command.get_command(Context(command), name)
        assert subcommand is not None, f"no command {name}: {line}"
        command = subcommand
    return command, rest


def check_parses(line: str) -> None:
    command, rest = resolved(line)
    takes_value = {name for param in command.params if not getattr(param, "is_flag", False) for name in param.opts}
    if rest and rest[-1] in takes_value:
        rest.append("VALUE")
    options, left, _ = command.make_parser(Context(command)).parse_args(rest)
    assert left == [], f"too many words: {line}"
    absent = [param.name for param in command.params if param.param_type_name == "argument" and param.required]
    assert not [name for name in absent if options.get(name) is None], f"too few words: {line}"
    assert len(options) >= sum(word.startswith("-") for word in rest)


@pytest.mark.parametrize("operation", Operation)
def test_every_operation_is_a_command_that_parses(operation: Operation) -> None:
    form = COMMANDS[operation]
    check_parses(spelled(words(operation)))
    assert "{" not in spelled(words(operation))
    if "{" in form:
        check_parses(line := spelled(words(Do(operation, "one"))))
        assert "one" in line.split()


@pytest.mark.parametrize("parameter", Parameter)
def test_every_parameter_is_an_option_that_some_command_has(parameter: Parameter) -> None:
    name = spelled(words(parameter))
    assert " " not in name
    assert name in EVERY_OPTION
    takes_value = [not getattr(param, "is_flag", False) for param in EVERY_OPTION[name]]
    assert any(takes_value) if "{" in OPTIONS[parameter] else not all(takes_value), "its kind of value, or none"
    assert spelled(words(Give(parameter))).split()[0] == name
    if any(takes_value):
        assert spelled(words(Give(parameter, "5"))) == f"{name} 5"


def test_no_two_are_spelled_alike() -> None:
    assert (set(COMMANDS), len(set(COMMANDS.values()))) == (set(Operation), len(COMMANDS))
    # Those of a new access rule are options of one command, which always stands before them.
    others = [spelling for parameter, spelling in OPTIONS.items() if not parameter.name.startswith("ACL_")]
    assert (set(OPTIONS), len(set(others))) == (set(Parameter), len(others))


def test_a_failure_is_told_in_options_and_commands() -> None:
    hint = Phrase("give ", Give(Parameter.TIMEOUT), ", or look: ", Do(Operation.DESCRIBE_TOPIC, "orders"))
    failure = failure_of(BadRequest(Phrase(Parameter.TOPIC, " is odd"), where=Give(Parameter.TIME, "x"), hint=hint))
    assert failure.line == "--topic is odd: --time x"
    assert failure.as_json()["hint"] == "give --timeout SECONDS, or look: klamm topics describe orders"


def test_a_hint_names_the_cluster_that_the_command_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Pasted without the options, it would ask another cluster."""
    invocation = Invocation(OutputFormat.TABLE, Talk(), target_options=TargetOptions(cluster="prod"))
    look = Phrase("look: ", Operation.LIST_TOPICS, "; ", Do(Operation.DESCRIBE_TOPIC, "t"))
    invocation.tell_failures([BadRequest("odd", hint=look)])
    assert (
        "hint: look: klamm topics list --cluster prod; klamm topics describe t --cluster prod"
        in capsys.readouterr().err
    )
    others = (
        Operation.START_LOCAL_CLUSTER,
        Operation.CHECK_ZOOKEEPER,
        Operation.MERGE_STATE_CHANGES,
        Operation.ADD_ACL,
    )
    for operation in others:
        invocation.tell_failures([BadRequest("odd", hint=words(operation))])
        assert "--cluster" not in capsys.readouterr().err, "no cluster, its own, or another login"


def test_a_note_that_ends_with_a_command_names_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    invocation = Invocation(OutputFormat.PLAIN, Talk(), target_options=TargetOptions(bootstrap_server="h:1"))
    notes = (
        Advice("go on: klamm plan resume 'p, (1); next.json'"),
        "give it more (klamm plan factor), or wait",
        "see: klamm a -b x; then b",
    )
    invocation.print(Report([], Table((), ()), notes=notes))
    assert capsys.readouterr().err.splitlines() == [f"{notes[0]} --bootstrap-server h:1", *notes[1:]]


def test_whoever_waits_for_replicas_is_told_where_to_look() -> None:
    waiting = RecordsDeletion("t", 0, 2, 0, 90, 80, 80, None, DeletionResult.UNDER_WAY, 0, "REQUEST_TIMED_OUT")
    (note,) = deletions_report([waiting]).notes
    assert isinstance(note, Advice) and note.endswith(": klamm topics describe")


@pytest.mark.parametrize(
    ("entity", "line"),
    [
        (Entity(EntityType.TOPIC, "t"), "--topic t"),
        (Entity(EntityType.BROKER, "7"), "--broker 7"),
        (Entity(EntityType.BROKER, None), "--entity-type brokers"),
        (Entity(EntityType.USER_CLIENT, "u/c"), "--entity-type users"),
        (Entity(EntityType.IP, "10.0.0.1"), "--entity-type ips"),
    ],
)
def test_a_setting_that_is_not_set_is_looked_for_where_it_was_to_be_dropped(entity: Entity, line: str) -> None:
    hint = failure_of(not_set(entity, ["key"])).hint
    assert hint == f"see what is set with: klamm configs describe {line}"


def test_advice_on_health_is_told_in_commands() -> None:
    report = report_of([(Check.OFFLINE_PARTITIONS, ["t-0"]), (Check.UNDER_MIN_ISR, ["t-1"])])
    *_, last = health_report(report, fails_on=HealthStatus.CRITICAL).sections
    assert last.text == [
        "offline_partitions: start a broker that has a replica; as a last resort, where another replica is up, "
        "klamm elect unclean --topic TOPIC --partition N",
        "under_min_isr: producers with acks=all are refused: klamm topics describe --under-min-isr-partitions",
    ]


def test_what_goes_on_is_told_in_commands() -> None:
    invocation = Invocation(OutputFormat.JSON, Talk())
    invocation.accepted(Phrase("check with: ", Operation.LIST_TOPICS))
    assert invocation.left_running == ["check with: klamm topics list"]
