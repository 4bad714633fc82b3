"""How to declare a command: a typed function with examples, whose options are its own and the shared ones.

    topics = CommandGroup("topics", "Look at, make, change and delete topics.")

    @topics.command("list", needs=Needs(cluster=True), examples=("klamm topics list",))
    async def list_topics(invocation: Invocation, pattern: Pattern = None) -> Report:
        \"\"\"List topics.\"\"\"

The function's first parameter is the run; the others become arguments and options by Typer's rules. A parameter whose
type is a dataclass adds an option for each of its fields, so that several commands can share them. The function
returns a Report, an ExitCode or nothing, and may be a coroutine.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, TypeVar

from typer._click.core import Context
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from cli.framework.coercion import PlainCoercion
from cli.framework.execution import CommandFunction, execute
from cli.framework.options import NEEDS_NOTHING, Needs, invocation_from, shared_parameters
from cli.output.format import OutputFormat

Function = TypeVar("Function", bound=Callable[..., Any])

OPTIONS_PANEL = "Options"
HELP_WIDTH_MAX = 100

OUTPUT = "klamm.output"
_OUTPUT_OPTIONS = ("-o", "--output")


def output_taken(ctx: Context, args: list[str]) -> list[str]:
    """Return the words without a leading ``-o FORMAT``; the command that follows applies it."""
    rest = list(args)
    while rest:
        word, has_value, value = rest[0].partition("=")
        if word in _OUTPUT_OPTIONS and (has_value or len(rest) > 1):
            ctx.meta[OUTPUT] = value if has_value else rest.pop(1)
        elif word.startswith("-o") and word != "-o":
            ctx.meta[OUTPUT] = rest[0][2:]
        else:
            break
        rest.pop(0)
    return rest


class KlammCommand(PlainCoercion, TyperCommand):
    """A command whose help shows shared options below its own, and examples as they are typed."""

    examples: tuple[str, ...] = ()
    words: str = ""
    """The words that follow ``klamm``."""
    needs: Needs = NEEDS_NOTHING
    bare_values: Mapping[str, str] = {}
    """Options that may be given without a value, like some of Kafka's, and the value that they then have."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Give an option without a value, at the end or before another option, its implied value."""
        output = ctx.meta.get(OUTPUT)
        if output == OutputFormat.KAFKA and not self.needs.kafka:
            output = None
        given: list[str] = [] if output is None else ["--output", output]
        for word, next_word in zip(args, [*args[1:], "-"], strict=False):
            given.append(word)
            if word in self.bare_values and next_word.startswith("-"):
                given.append(self.bare_values[word])
        return super().parse_args(ctx, given)

    def format_options(self, ctx: Context, formatter: Any) -> None:
        """Write arguments, then options by panel."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], OPTIONS_PANEL: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if param.param_type_name == "argument":
                # Typer adds the Python type, which says nothing here.
                panels["Arguments"].append((record[0].partition(" ")[0], record[1]))
            else:
                panel = getattr(param, "rich_help_panel", None) or OPTIONS_PANEL
                panels.setdefault(panel, []).append(record)
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Context, formatter: Any) -> None:
        """Write the rights that it needs, and the examples, unwrapped: they are for copying."""
        from cli.table_of_rights import needs_of, znode_needs_of

        for title, needs in (
            ("ACLs, where brokers have an authorizer", needs_of(self.words)),
            ("Znodes, with --zookeeper alone, where ZooKeeper has access lists", znode_needs_of(self.words)),
        ):
            if needs:
                with formatter.section(title):
                    formatter.write_dl([(str(need), need.consequence) for need in needs])
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"{'':{formatter.current_indent}}{line}\n" for line in self.examples))


class KlammGroup(PlainCoercion, TyperGroup):
    """A group that also understands Kafka's way: ``kafka-topics --list`` is ``topics list``."""

    action_flags: Mapping[str, str] = {}

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Turn the first action flag into the command's word, if no word was given."""
        args = output_taken(ctx, args)
        if args and args[0].startswith("-"):
            for index, arg in enumerate(args):
                if arg in self.action_flags:
                    args = [self.action_flags[arg], *args[:index], *args[index + 1 :]]
                    break
        return super().parse_args(ctx, args)


class CommandGroup:
    def __init__(self, name: str, help_text: str, *, action_flags: Mapping[str, str] | None = None) -> None:
        self.click_group = KlammGroup(
            name=name,
            help=help_text,
            no_args_is_help=True,
            rich_markup_mode=None,
            context_settings={"max_content_width": HELP_WIDTH_MAX},
        )
        self.click_group.action_flags = dict(action_flags or {})

    def command(
        self,
        name: str,
        *,
        examples: Sequence[str],
        needs: Needs = NEEDS_NOTHING,
        bare_values: Mapping[str, str] | None = None,
    ) -> Callable[[Function], Function]:
        """Register the decorated function as the command called ``name``."""

        def register(function: Function) -> Function:
            words = f"{self.click_group.name} {name}"
            command = build_command(name, function, needs, examples, words)
            command.bare_values = dict(bare_values or {})
            self.click_group.add_command(command)
            return function

        return register

    def put_in_order(self, *names: str) -> None:
        """Let the help show the commands in this order, whichever module declared them first; others come last."""
        commands = self.click_group.commands
        self.click_group.commands = {name: commands[name] for name in (*names, *commands)}


def single_command(
    name: str, *, needs: Needs = NEEDS_NOTHING, examples: Sequence[str]
) -> Callable[[CommandFunction], KlammCommand]:
    """Declare a command that belongs to no group, such as ``klamm produce``."""

    def build(function: CommandFunction) -> KlammCommand:
        return build_command(name, function, needs, examples)

    return build


def build_command(
    name: str, function: CommandFunction, needs: Needs, examples: Sequence[str], words: str = ""
) -> KlammCommand:
    """Return the command made of a function, its shared options and its examples; ``words`` follow ``klamm``."""
    info = CommandInfo(
        name=name,
        cls=KlammCommand,
        callback=_callback(function, needs, words or name),
        help=inspect.getdoc(function),
        context_settings={"max_content_width": HELP_WIDTH_MAX},
        options_metavar="[OPTIONS]",
    )
    command = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
    assert isinstance(command, KlammCommand)
    command.examples = tuple(examples)
    command.words = words or name
    command.needs = needs
    return command


def _callback(function: CommandFunction, needs: Needs, words: str) -> Callable[..., int]:
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = shared_parameters(needs)
    shared_names = {parameter.name for parameter in shared}

    def callback(**values: Any) -> int:
        invocation = invocation_from(needs, {name: values[name] for name in shared_names})
        own_values = {name: value for name, value in values.items() if name not in shared_names}
        if needs.cluster:
            from cli.table_of_rights import Without, needs_of, znode_needs_of

            given = {name for name, value in own_values.items() if value not in (None, False, [], ())}
            counting = [need for need in needs_of(words) if need.counts_with(given)]
            invocation.rights = tuple(need.right for need in counting)
            invocation.essential_rights = tuple(need.right for need in counting if need.without is Without.REFUSED)
            parts = (Without.HIDDEN, Without.BESIDE)
            invocation.hidden_parts = {need.right: need.part for need in counting if need.without in parts}
            invocation.hidden_parts |= {need.path: need.part for need in znode_needs_of(words)}
        return execute(invocation, function, _gathered(own, own_values), is_bounded=needs.bounded)

    signature = inspect.Signature([*_options_of(own), *shared])
    callback.__signature__ = signature  # type: ignore[attr-defined]
    callback.__annotations__ = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
    callback.__name__ = getattr(function, "__name__", "command")
    return callback


def _options_of(parameters: Iterable[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """Yield the parameters, each dataclass as its fields."""
    for parameter in parameters:
        if is_dataclass(parameter.annotation):
            yield from _options_of(_fields_of(parameter))
        else:
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _gathered(parameters: Iterable[inspect.Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the parameters, those of fields put into their dataclass."""
    gathered = {}
    for parameter in parameters:
        kind: Any = parameter.annotation
        is_bundle = is_dataclass(kind)
        name = parameter.name
        gathered[name] = kind(**_gathered(_fields_of(parameter), values)) if is_bundle else values[name]
    return gathered


def _fields_of(parameter: inspect.Parameter) -> Iterable[inspect.Parameter]:
    return inspect.signature(parameter.annotation, eval_str=True).parameters.values()
