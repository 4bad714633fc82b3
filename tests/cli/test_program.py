"""What holds for every command: help, wrong use, formats of errors, colour. Through the real program."""

from __future__ import annotations

import itertools
import json
import os
import pty
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from klamm_program import PROGRAM, environment, in_process, klamm

from cli.exit_codes import ExitCode
from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.root import Entry, load
from cli.main import root_command
from cli.table_of_commands import ENTRIES


def commands_of(entry: Entry) -> list[Any]:
    command: Any = load(entry)
    return list(getattr(command, "commands", {command.name: command}).values())


def test_a_command_that_the_order_does_not_name_comes_last() -> None:
    group = CommandGroup("fruit", "Fruit.")
    for name in ("plum", "pear", "fig"):

        @group.command(name, examples=())
        def eat(invocation: Invocation) -> None:
            """Eat it."""

    group.put_in_order("fig", "pear")
    assert list(group.click_group.commands) == ["fig", "pear", "plum"]


def test_help_lists_every_command(tmp_path: Path) -> None:
    ran = klamm("--help", folder=tmp_path)
    assert ran.code == 0
    for entry in ENTRIES:
        assert f"  {entry.name} " in ran.out
        assert entry.help.split()[0] in ran.out
        assert not any(f"  {alias} " in ran.out for alias in entry.aliases), "aliases are hidden"


def test_version(tmp_path: Path) -> None:
    ran = klamm("--version", folder=tmp_path)
    assert ran.code == 0
    assert ran.out.startswith("klamm 0.")


def test_nothing_named_shows_the_help(tmp_path: Path) -> None:
    assert klamm(folder=tmp_path).code == 0
    ran = klamm("topics", folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "describe" in ran.err


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["topisc", "list"], "no such command: topisc; did you mean topics or top?: klamm", "klamm --help"),
        (["topics", "lst"], "no such command: lst; did you mean list?: klamm topics", "klamm topics --help"),
        (["topics", "xyzzy"], "no such command: xyzzy: klamm topics", "klamm topics --help"),
        (["topics", "describe", "t", "--partiton", "3"], "no such option: --partiton: klamm topics", "--help"),
        (["topics", "list", "--snapshto", "f"], "no such option: --snapshto; did you mean --snapshot?", "--help"),
        (["topics", "list", "--frobnicate"], "no such option: --frobnicate", "klamm topics list --help"),
        (
            ["tokens", "renew", "-AbC"],
            "no such option: -A",
            "begins with a hyphen stands behind --: klamm tokens renew --",
        ),
        (["topics", "delete", "-t"], "no such option: -t", "klamm topics delete -- NAME"),
        (["topics", "create", "t", "--partitions", "x"], "'x' is not a whole number", "klamm topics create --help"),
        (["zk", "tree", "--depth", "-1"], "-1 is not at least 0", "klamm zk tree --help"),
        (["topics", "list", "--timeout", "soon"], "not a duration: 'soon'", "klamm topics list --help"),
        (["topics", "list", "-o", "xml"], "--output must be one of table, json", "klamm topics list --help"),
        (["dump", "x.log", "-o", "markdown"], "--output markdown is for reports", "klamm dump --help"),
        (["topics", "list", "-o", "prometheus"], "is for commands that measure", "klamm topics list --help"),
        (["topics", "list", "--timeout", "0"], "--timeout must be", "klamm topics list --help"),
        (["topics", "list", "--via", "pigeon"], "--via must be", "klamm topics list --help"),
        (["topics", "list", "-q", "-v"], "contradict", "klamm topics list --help"),
        (["topics", "list"], "no cluster is named", "klamm local up"),
        (["topics", "list", "--bootstrap-server", "nonsense:port"], "not an address", "HOST:PORT"),
        (["topics", "list", "--bootstrap-server", "a..b:9092"], "not an address", "HOST:PORT"),
        (["topics", "list", "--zookeeper", "a..b:2181"], "not an address", "HOST:PORT"),
        (["topics", "list", "--snapshot", "absent.json"], "no such snapshot file: absent.json", None),
        (["consume", "t", "--offset", "soon"], "--offset must be a number", "klamm consume --help"),
        (["dump"], "name the files", "klamm dump --help"),
        (["dump", "absent.log"], "absent.log", None),
        (["configs", "describe"], "say whose settings", "klamm configs describe --help"),
    ],
)
def test_wrong_use_is_code_2_and_one_line(
    own_folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str, hint: str | None
) -> None:
    ran = in_process(*words, capture=capsys)
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    lines = ran.err.splitlines()
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert len(lines) <= 2
    if hint is not None:
        assert lines[1].startswith("hint: ")
        assert hint in lines[1]


@pytest.mark.parametrize("form", [["-o", "json"], ["--output=json"], ["-ojsonl"]])
def test_in_json_mode_errors_are_json(own_folder: Path, capsys: pytest.CaptureFixture[str], form: list[str]) -> None:
    ran = in_process("topics", "list", "--frobnicate", *form, capture=capsys)
    assert (ran.code, ran.error["code"], ran.error["kind"]) == (2, 2, "usage")
    assert set(ran.error) == {"code", "kind", "message", "hint"}
    ran = in_process("topics", "list", *form, capture=capsys)
    assert ran.error["message"] == "no cluster is named"


def test_a_cluster_that_is_not_there_is_code_3(tmp_path: Path) -> None:
    for option in ("--bootstrap-server", "--zookeeper"):
        ran = klamm("topics", "list", option, "127.0.0.1:1", "--timeout", "1", folder=tmp_path)
        assert ran.code == ExitCode.UNREACHABLE, ran.err
        assert "127.0.0.1:1" in ran.err.splitlines()[0]
        assert ran.err.splitlines()[1].startswith("hint: ")


def test_every_word_names_one_command() -> None:
    words = [word for entry in ENTRIES for word in (entry.name, *entry.aliases)]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_command_says_what_it_does_and_has_an_example(entry: Entry) -> None:
    for command in commands_of(entry):
        assert command.help, command.name
        assert command.help.partition("\n")[0].endswith("."), "the first line is one sentence"
        assert command.examples, command.name
        assert all("klamm" in example for example in command.examples)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_examples_are_for_copying_so_their_words_and_options_exist(entry: Entry) -> None:
    for example in (example for command in commands_of(entry) for example in command.examples):
        tokens = shlex.shlex(example, posix=True, punctuation_chars="|<>")
        tokens.whitespace_split = True
        for is_other, words in itertools.groupby(tokens, key=lambda word: set(word) <= set("|<>")):
            line = list(words)
            if not is_other and line[0] == "klamm":
                parse(line[1:])


def parse(words: list[str]) -> None:
    """Parse a command line as the program does, and run nothing."""
    root = root_command()
    with root.make_context("klamm", list(words)) as context:
        name, command, rest = root.resolve_command(context, list(words))
        while hasattr(command, "commands"):
            name, command, rest = command.resolve_command(context, rest)
        assert command is not None
        command.make_context(name, rest, parent=context)


NOT_FOR_HELP = (
    "pydantic",
    "textual",
    "pyspark",
    "kazoo",
    "asyncio",
    "rich",
    "yaml",
    "crc32c",
    "uvloop",
    "engine.kafka.zk",
)


def test_help_loads_no_library_that_it_does_not_need(tmp_path: Path) -> None:
    lines = [["--help"], *([entry.name, "--help"] for entry in ENTRIES)]
    for entry in ENTRIES:
        entry_point: Any = load(entry)
        lines += [[entry.name, word, "--help"] for word in getattr(entry_point, "commands", {})]
    code = (
        "import json, sys, io\nfrom cli.main import main\n"
        "sys.stdout = io.StringIO()\n"
        f"codes = [main(words) for words in {lines!r}]\n"
        "assert not any(codes), codes\n"
        "sys.stdout = sys.__stdout__\nprint(json.dumps(sorted(sys.modules)))"
    )
    loaded = json.loads(python(code, tmp_path))
    assert not [name for name in loaded if name.startswith(NOT_FOR_HELP)]


@pytest.mark.parametrize(
    ("words", "forbidden"),
    [
        (["topics", "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1"], ("kazoo", "rich", "yaml")),
        (["topics", "list", "--zookeeper", "127.0.0.1:1", "--timeout", "1"], ("rich", "crc32c", "uvloop")),
        (["profiles", "list"], ("asyncio", "kazoo", "rich", "crc32c")),
        (["doctor"], ("asyncio", "kazoo", "rich", "crc32c")),
    ],
)
def test_a_command_loads_what_it_needs(tmp_path: Path, words: list[str], forbidden: tuple[str, ...]) -> None:
    code = f"import json, sys\nfrom cli.main import main\nmain({words!r})\nprint(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(python(code, tmp_path).splitlines()[-1])
    assert not [name for name in loaded if name.split(".")[0] in (*forbidden, "pydantic", "textual", "pyspark")]


def python(code: str, folder: Path) -> str:
    ran = subprocess.run(
        [PROGRAM.parent / "python", "-c", code], cwd=folder, env=environment(folder), capture_output=True, check=True
    )
    return ran.stdout.decode()


@pytest.mark.parametrize("debug", ["", "1"])
def test_no_traceback_reaches_a_user(tmp_path: Path, debug: str) -> None:
    """A mistake of ours is reported in one line. A developer can ask for more."""
    code = (
        "import sys\nimport engine.admin.cluster.profiles as profiles\n"
        "def broken(path): raise KeyError('x')\n"
        "profiles.load_profiles = broken\n"
        "from cli.main import main\nsys.exit(main(['profiles', 'list', '-o', 'json']))"
    )
    ran = subprocess.run(
        [PROGRAM.parent / "python", "-c", code],
        cwd=tmp_path,
        env=environment(tmp_path, KLAMM_DEBUG=debug),
        capture_output=True,
        check=False,
    )
    output = ran.stderr.decode()
    assert ran.returncode == ExitCode.INTERNAL
    assert ("Traceback" in output) == bool(debug)
    error = json.loads(output.splitlines()[-1])["error"]
    assert error["kind"] == "internal"
    assert "KeyError: 'x'" in error["message"]
    assert "KLAMM_DEBUG" in error["hint"]


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    ran = klamm("topics", "list", "-b", "h:1", "--command-config", "folder", folder=tmp_path)
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: is a directory: folder")


def test_colour_only_on_a_terminal_and_never_against_no_color(tmp_path: Path) -> None:
    assert "\x1b[" not in klamm("doctor", "-o", "table", folder=tmp_path).out
    assert "\x1b[" in on_terminal(["doctor"], tmp_path)
    assert "\x1b[" not in on_terminal(["doctor"], tmp_path, NO_COLOR="1")
    assert "\x1b[" not in on_terminal(["doctor"], tmp_path, TERM="dumb")
    assert "\x1b[" in on_terminal(["topics", "list"], tmp_path), "errors too"


def test_a_pipe_gets_plain_and_a_terminal_a_table(tmp_path: Path) -> None:
    assert klamm("doctor", folder=tmp_path).rows[0][:2] == ["python", "ok"]
    assert on_terminal(["doctor"], tmp_path, NO_COLOR="1").split()[:2] == ["Check", "Status"]


def test_completion_knows_the_commands(tmp_path: Path) -> None:
    asked = {"_KLAMM_COMPLETE": "complete_bash", "COMP_WORDS": "klamm to", "COMP_CWORD": "1"}
    assert "topics" in klamm(folder=tmp_path, env=asked).out.split()


def on_terminal(words: list[str], folder: Path, **extra: str) -> str:
    """Run the program with a terminal for its three streams, and return everything that it wrote."""
    ours, theirs = pty.openpty()
    variables = environment(folder, **{"COLUMNS": "140", **extra})
    process = subprocess.Popen([PROGRAM, *words], cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:
            # Linux raises EIO if the other side of a terminal is closed.
            break
        if not chunk:
            break
        written += chunk
    os.close(ours)
    process.wait(30)
    return written.decode("utf-8", "replace")


def with_streams(redirected: str, words: str, folder: Path, stdout: int = subprocess.PIPE) -> tuple[int, str]:
    """Run the program with streams as a shell redirects them; return its exit code and what it wrote on stderr."""
    ran = subprocess.run(
        ["bash", "-c", f"{PROGRAM} {words} {redirected}"],
        cwd=folder, env=environment(folder), stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    return ran.returncode, ran.stderr


@pytest.mark.parametrize(
    ("closed", "with_data"),
    [(">&-", ExitCode.USAGE), ("2>&-", ExitCode.DONE), ("<&-", ExitCode.DONE), ("<&- >&- 2>&-", ExitCode.USAGE)],
    ids=["stdout", "stderr", "stdin", "all"],
)
def test_streams_that_the_caller_has_closed_are_no_bug(tmp_path: Path, closed: str, with_data: ExitCode) -> None:
    for words, code in (
        ("topics list", ExitCode.USAGE),
        ("profiles list", ExitCode.DONE),
        ("profiles list -o json", with_data),
        ("produce orders", ExitCode.USAGE),
    ):
        ended, said = with_streams(closed, words, tmp_path)
        assert (ended, "internal error" in said) == (code, False), (words, said)


WITH_DATA = ("", "topics --help", "profiles list -o json")


@pytest.mark.parametrize(
    ("redirected", "reason"),
    [(">&-", "bad file descriptor"), (">/dev/full", "no space left on device")],
    ids=["closed", "full disk"],
)
@pytest.mark.parametrize("words", WITH_DATA)
def test_lost_data_fails_a_command(tmp_path: Path, words: str, redirected: str, reason: str) -> None:
    """Otherwise a script would take nothing for an answer."""
    ended, said = with_streams(redirected, words, tmp_path)
    message = json.loads(said)["error"]["message"] if "json" in words else said.removeprefix("error: ").rstrip()
    assert (ended, message) == (ExitCode.USAGE, f"{reason}: stdout")


@pytest.mark.parametrize("words", WITH_DATA)
def test_a_reader_that_has_gone_fails_no_command(tmp_path: Path, words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert with_streams("", words, tmp_path, writing) == (ExitCode.DONE, "")
    finally:
        os.close(writing)
