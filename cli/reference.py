"""The reference page of all commands, made from the commands themselves: ``python -m cli.reference`` writes it.

The schema of plan files is beside it. A test compares both with what this makes, so they are always up to date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli.exit_codes import ExitCode
from cli.framework.command import OPTIONS_PANEL, KlammCommand
from cli.framework.kafka_tools import Change, Drop, KafkaTool, Milliseconds, Minutes, Properties, Refuse, Rename, Word
from cli.framework.options import CLUSTER_PANEL, COMMON_PANEL
from cli.framework.root import Entry, load
from cli.main import root_command
from cli.output.format import OutputFormat
from cli.table_of_commands import ENTRIES
from cli.table_of_kafka_tools import ABSENT_TOOLS, TOOLS
from cli.table_of_rights import RIGHTS, ZNODES, needs_of, znode_needs_of
from plans.plan_file import plan_schema_text

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
TOOLS_PAGE = PAGE.with_name("kafka-tools.md")
TOOL_OPTIONS = PAGE.parents[2] / "fixtures" / "kafka-tools" / "options.json"
ABSENT_OPTIONS = TOOL_OPTIONS.with_name("absent-options.json")
RIGHTS_PAGE = PAGE.with_name("rights.md")
PLAN_SCHEMA = PAGE.with_name("plan.schema.json")

_HEAD = """\
# Commands

<!-- Made by `python -m cli.reference` from the commands themselves; do not edit. -->

`klamm COMMAND --help` says the same on a terminal. stdout carries data, stderr carries messages.

"""


_TOOLS_HEAD = """\
# Kafka's tools, option by option

<!-- Made by `python -m cli.reference` from the tables of the tools; do not edit. -->

Kafka's tools work under their own names, such as `klamm kafka-topics --list`. `klamm shims DIR` writes their shell
names (`kafka-topics.sh` and `kafka-topics`) into a folder, so that the command lines of old scripts work. They print
what Kafka's tools print; [the guide](../guides/command-line.md#what-scripts-read) has the exceptions. The
options are those that the tools of Apache Kafka 3.9.1 list in their help, and those that klamm translates
for other releases. For a tool without a recorded help, options that are not listed are those of the klamm command.

"""


_RIGHTS_HEAD = """\
# The ACLs that each command needs

<!-- Made by `python -m cli.reference` from `cli/table_of_rights.py`; do not edit. -->

These are the rules that a principal needs to run a command against brokers that have an authorizer, and no more: tests
run each command with exactly these, and without each one, on klamm's brokers and on Apache Kafka. `describe` is implied
by `read`, `write`, `delete` and `alter`, and `describe-configs` by `alter-configs`; what is implied is not listed.

If one is missing, klamm says who lacks which operation on which resource, and the `klamm acls add` that an
administrator would type. With `-o json` the error has `principal`, `operation` and `resource`. A command that can show
the rest does so, says what is hidden, and with `-o json` prints `{"hidden": [{"resource", "operation"}], "principal"}`
as a line on stderr; where stdout has an object and not a list, `hidden` is in it too. Kafka leaves some things out of
its lists and does not say so: then neither can klamm, unless log dirs show topics that the lists lack.

With `--zookeeper` alone klamm changes znodes, and asks brokers only for sizes, offsets and records: then [the access
lists of znodes](#through-zookeeper) count too.

"""


_ZNODES_HEAD = """\

## Through ZooKeeper

Where brokers run with `zookeeper.set.acl=true`, or `klamm zk secure` has closed the znodes, everybody may read all but
secrets, and only the brokers' own user may change anything. With `--zookeeper` alone a command needs the following on
the znode and on all below it, and no more: tests run each command with exactly these, and without each one, on klamm's
brokers and on Apache Kafka. To read, a session needs `r` in the access list; to change, `crwd`. Other commands read
what everybody may read.

If a right is missing, klamm names the znode, its access list and who asks. Some changes take several writes: then klamm
also says what it has written before it was refused.

"""


def page() -> str:
    return _HEAD + "\n".join(
        [*_contents(), *_exit_codes(), *_formats(), *_shared_options(), *_kafka_tools(), *_commands()]
    )


def tools_page() -> str:
    """Return the page that has every option of Kafka's tools, with its counterpart here."""
    lines = [line for tool in TOOLS for line in _tool_options(tool)]
    return _TOOLS_HEAD + "\n".join([*lines, *_tools_not_here()]).rstrip() + "\n"


def rights_page() -> str:
    """Return the page of the ACLs that each command needs."""
    rows = [f"| `{words}` | {need} | {need.consequence} |" for words in RIGHTS for need in needs_of(words)]
    nothing = ", ".join(f"`{words}`" for words, needs in RIGHTS.items() if not needs)
    table = "\n".join(("| command | needs | remarks |", "|---|---|---|", *rows))
    by_znode = [f"| `{words}` | {need} | {need.consequence} |" for words in ZNODES for need in znode_needs_of(words)]
    znodes = "\n".join(("| command | needs | remarks |", "|---|---|---|", *by_znode))
    return f"{_RIGHTS_HEAD}{table}\n\nNothing is needed for {nothing}.\n{_ZNODES_HEAD}{znodes}\n"


def main() -> None:
    """Write the pages, or with ``--check`` say whether they are up to date."""
    pages = {PAGE: page(), TOOLS_PAGE: tools_page(), RIGHTS_PAGE: rights_page()}
    if "--check" in sys.argv[1:]:
        old = [path.name for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text]
        sys.exit(f"out of date in docs/reference: {', '.join(old)}: python -m cli.reference" if old else 0)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    for path, text in pages.items():
        path.write_text(text, "utf-8")
    PLAN_SCHEMA.write_text(plan_schema_text(), "utf-8")


def _contents() -> Iterator[str]:
    yield "| command | does |"
    yield "|---|---|"
    for entry in ENTRIES:
        for words, command in _commands_of(entry):
            anchor = words.replace(" ", "-")
            yield f"| [`{words}`](#{anchor}) | {_first_sentence(command)} |"
    yield ""


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | name | meaning |"
    yield "|---|---|---|"
    for code in ExitCode:
        yield f"| {int(code)} | {code.name} | {code.meaning} |"
    yield ""


def _formats() -> Iterator[str]:
    names = ", ".join(f"`{output.value}`" for output in OutputFormat if output is not OutputFormat.PROMETHEUS)
    yield "## Formats\n"
    yield f"`-o` takes {names}; without it a terminal gets `table` and a pipe `plain` (tab-separated, no header)."
    yield "Commands that measure take `prometheus` too, as their own page says."
    yield "Keys are snake_case, times ISO 8601 in UTC with milliseconds, durations end in `_ms`, sizes in `_bytes`."
    yield "With `json` and `jsonl` an error is an object on stderr: "
    yield '`{"error": {"code", "kind", "message", "hint"}}`, and `kafka_error` if the cluster named one;'
    yield "`principal`, `operation` and `resource` if [a right](rights.md) is missing.\n"


def _shared_options() -> Iterator[str]:
    yield "## Options that many commands share\n"
    sample = dict(_commands_of(next(entry for entry in ENTRIES if entry.name == "topics")))["topics delete"]
    for panel in (CLUSTER_PANEL, COMMON_PANEL):
        yield f"**{panel}**\n"
        yield from _options(sample, panel)
        yield ""


def _kafka_tools() -> Iterator[str]:
    yield "## Kafka's own tools\n"
    yield "Their names work, with and without `.sh`, and take their own options; the options below have another name"
    yield "here or no meaning. What they print is what Kafka's tools print; [the guide]"
    yield "(../guides/command-line.md#what-scripts-read) has the exceptions. Exit codes are klamm's. Like"
    yield "Kafka's tools, they do not ask before a change; a read-only profile refuses all the same."
    yield "`kafka-run-class` takes their classes, in whatever package: `kafka-run-class kafka.tools.GetOffsetShell`.\n"
    yield "| tool | is | options |"
    yield "|---|---|---|"
    for tool in TOOLS:
        ways = [" ".join(("klamm", *tool.words, action)) for action in sorted(tool.actions)]
        ours = ", ".join(f"`{way}`" for way in ways or [" ".join(("klamm", *tool.words))])
        yield f"| `{tool.name}` | {ours} | {'; '.join(_changes(tool)) or 'the same'} |"
    yield ""


def _changes(tool: KafkaTool) -> Iterator[str]:
    for option, change in tool.options.items():
        if not isinstance(change, Word) or change.word is None:
            yield f"`{option}` {_change_text(tool, change)}"


def _change_text(tool: KafkaTool, change: Change | None) -> str:
    """Return what becomes of an option."""
    match change:
        case None:
            return "is the same"
        case Rename(to):
            return f"is `{to}`"
        case Milliseconds(to):
            return f"is `{to}`, in milliseconds"
        case Minutes(to):
            return f"is `{to}`, in minutes"
        case Properties():
            return "takes those that klamm has options for"
        case Drop():
            return "is ignored: it has no meaning here"
        case Refuse(instead):
            return f"is refused: {instead}"
        case Word(None):
            return "is the command"
        case Word(word):
            return f"is `klamm {' '.join((*tool.words, word or ''))}`"


def _tool_options(tool: KafkaTool) -> Iterator[str]:
    yield f"## {tool.name}\n"
    yield f"`klamm {' '.join(tool.words)}`\n"
    listed = json.loads(TOOL_OPTIONS.read_text("utf-8")).get(tool.name, ())
    options = sorted({*listed, *tool.options})
    if not options:
        return
    yield "| option | here it |"
    yield "|---|---|"
    yield from (f"| `{option}` | {_change_text(tool, tool.options.get(option))} |" for option in options)
    yield ""


def _tools_not_here() -> Iterator[str]:
    yield "## Tools without a command here\n"
    yield "These are refused under their own names with exit code 2, whatever their options.\n"
    yield "| tool | instead, or why not |"
    yield "|---|---|"
    yield from (f"| `{name}` | {_cell(tool.instead)} |" for name, tool in ABSENT_TOOLS.items())
    yield ""
    for name, options in json.loads(ABSENT_OPTIONS.read_text("utf-8")).items():
        yield f"### {name}\n"
        yield "| option | instead |"
        yield "|---|---|"
        yield from (f"| `{option}` | {_cell(ABSENT_TOOLS[name].instead_of(option))} |" for option in options)
        yield ""


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _commands() -> Iterator[str]:
    for entry in ENTRIES:
        for words, command in _commands_of(entry):
            yield from _command(words, command, entry)


def _command(words: str, command: KlammCommand, entry: Entry) -> Iterator[str]:
    yield f"## {words}\n"
    yield f"{command.help or ''}\n"
    names = [*entry.aliases, *(tool.name for tool in TOOLS if _is_tool(tool, words))]
    aliases = ", ".join(f"`klamm {alias}`" for alias in names)
    if aliases:
        yield f"Also: {aliases}.\n"
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = "".join(f" {_argument(param)}" for param in arguments)
    yield f"    klamm {words}{usage} [OPTIONS]\n"
    own = [*(_record(param) for param in arguments), *_options(command, OPTIONS_PANEL)]
    if own:
        yield from own
        yield ""
    for rights_page, needs in (
        ("[these ACLs](rights.md)", needs_of(words)),
        ("[these znodes](rights.md#through-zookeeper), with `--zookeeper` alone", znode_needs_of(words)),
    ):
        if needs:
            rights = ", ".join(f"{need} ({need.consequence})" if need.consequence else str(need) for need in needs)
            yield f"Needs {rights_page}: {rights}.\n"
    panels = {_panel(param) for param in command.params}
    shared = [panel.lower() for panel in (CLUSTER_PANEL, COMMON_PANEL) if panel in panels]
    yield f"Takes the shared options: {', '.join(shared)}.\n"
    yield "".join(f"    {example}\n" for example in command.examples)


def _is_tool(tool: KafkaTool, words: str) -> bool:
    """Whether a Kafka tool, with one of its actions, is the command of these words."""
    own = [word for word in tool.words if not word.startswith("-")]
    ways = [[*own, action] for action in tool.actions] or [own]
    return words.split() in ways or (words.split()[: len(own)] == own and None in _open_words(tool))


def _open_words(tool: KafkaTool) -> list[str | None]:
    return [change.word for change in tool.options.values() if isinstance(change, Word)]


def _commands_of(entry: Entry) -> Iterator[tuple[str, KlammCommand]]:
    command: Any = load(entry)
    commands = getattr(command, "commands", None)
    if commands is None:
        yield entry.name, command
        return
    for word, command in commands.items():
        yield f"{entry.name} {word}", command


def _options(command: KlammCommand, panel: str) -> list[str]:
    return [
        _record(param)
        for param in command.params
        if param.param_type_name == "option" and not getattr(param, "hidden", False) and _panel(param) == panel
    ]


def _record(param: Any) -> str:
    with root_command().make_context("klamm", [], resilient_parsing=True) as context:
        names, text = param.get_help_record(context)
    if param.param_type_name == "argument":
        names = names.partition(" ")[0]
    return f"* `{names}`: {text}"


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    name = f"{name}…" if param.nargs != 1 else name
    return name if param.required else f"[{name}]"


def _panel(param: Any) -> str:
    return getattr(param, "rich_help_panel", None) or OPTIONS_PANEL


def _first_sentence(command: KlammCommand) -> str:
    return (command.help or "").partition("\n")[0]


if __name__ == "__main__":
    main()
