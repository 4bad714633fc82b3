"""Translates a Kafka tool's command line into ours: ``kafka-topics --list`` is ``topics list``.

Each tool is a row of a table (``cli.table_of_kafka_tools``): our command, and how to translate those of its options
that have another name or unit here. Every other word stays as it is, so our own options work beside Kafka's. The
output is that of Kafka's tool, if our command has it (``Needs.kafka``), unless ``-o`` is given. The exit codes are
ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from typer._click.exceptions import UsageError


@dataclass(frozen=True, slots=True)
class Rename:
    """The option is called ``to`` here. The value that follows it stays, or becomes what ``values`` has for it.

    With ``without_value``, its value may be left out, and is that then.
    """

    to: str
    values: Mapping[str, str] = field(default_factory=dict)
    without_value: str | None = None


@dataclass(frozen=True, slots=True)
class Milliseconds:
    """The option's value is in milliseconds there, in seconds here."""

    to: str


@dataclass(frozen=True, slots=True)
class Minutes:
    """The option's value is in minutes there, in seconds here."""

    to: str


@dataclass(frozen=True, slots=True)
class Drop:
    """The option is dropped, except for the subcommands of ours in ``kept_for``."""

    has_value: bool = False
    kept_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    """The option is our command's next word; without ``word``, its value is, in small letters or as in ``values``."""

    word: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Properties:
    """The option's values are properties, ``K=V``. ``fold`` makes our words of them, or returns None if it cannot."""

    fold: Callable[[Mapping[str, str]], list[str] | None]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The option has no counterpart here; ``instead`` says why, or what to use."""

    instead: str


Change = Rename | Milliseconds | Minutes | Drop | Word | Properties | Refuse


@dataclass(frozen=True, slots=True)
class KafkaTool:
    """One of Kafka's tools, with and without ``.sh``.

    Attributes:
        words: our command for it.
        options: those of its options that differ from ours.
        unless: words to add if none of the named options is given.
        changes: the subcommands of ours that change something. Like the tool, it then does not ask for confirmation.
        defaults: by our subcommand, options with the tool's defaults; they come first, so that the user's options win.
        first: the option that takes the first word as its value, if the tool wants such a word.
        main: its class without the package, which has moved from release to release.
    """

    name: str
    words: tuple[str, ...]
    options: Mapping[str, Change] = field(default_factory=dict)
    unless: tuple[tuple[tuple[str, ...], str], ...] = ()
    changes: tuple[str, ...] = ()
    defaults: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    first: str | None = None
    main: str | None = None

    @property
    def actions(self) -> frozenset[str]:
        """The words that an option of the tool may put after ``words``."""
        return frozenset(
            change.word for change in self.options.values() if isinstance(change, Word) and change.word is not None
        )


RUN_CLASS = "kafka-run-class"
"""Runs any Java class of Kafka's; old articles call tools this way."""

_EVERYWHERE: Mapping[str, str] = {
    "--help": "klamm COMMAND --help",
    "--version": "klamm --version",
    "--bootstrap-server": "every command takes --bootstrap-server",
    "--broker-list": "every command takes --bootstrap-server",
    "--command-config": "every command takes --command-config",
}


@dataclass(frozen=True, slots=True)
class AbsentTool:
    """One of Kafka's tools that has no command here; it is refused under its own name.

    Attributes:
        instead: what to use, or why there is nothing.
        options: the same for those of its options and subcommands that have an answer of their own.
    """

    instead: str
    options: Mapping[str, str] = field(default_factory=dict)

    def instead_of(self, option: str) -> str:
        """Return what to do instead of giving one of its options."""
        return self.options.get(option) or _EVERYWHERE.get(option) or self.instead


def translate(tools: Sequence[KafkaTool], arguments: Sequence[str]) -> list[str] | None:
    """Return our words for a tool's command line, the tool's name first; None if it names no tool.

    Raises:
        UsageError: the tool wants one of several actions, and none is given, or more than one; or an option of it has
            no counterpart.
    """
    name, given = arguments[0].removesuffix(".sh"), list(arguments[1:])
    is_class = name == RUN_CLASS
    if is_class:
        name = _class_taken(given)
    tool = next((known for known in tools if name == (known.main if is_class else known.name)), None)
    if tool is None:
        return None
    if given == ["--version"]:
        return given
    words, rest = list(tool.words), []
    if tool.first is not None and given and not given[0].startswith("-"):
        rest += [tool.first, given.pop(0)]
    properties: dict[str, dict[str, str]] = {}
    kept: dict[str, tuple[str, ...]] = {}
    while given:
        option, has_value, value = given.pop(0).partition("=")
        # After a subcommand, a word without dashes is a value.
        is_value = not option.startswith("-") and len(words) > len(tool.words)
        change = None if is_value else tool.options.get(option)
        if isinstance(change, Properties):
            # Blanks are kept: a separator may be one.
            name, _, text = (value if has_value else given.pop(0) if given else "").partition("=")
            properties.setdefault(option, {})[name] = text
        elif isinstance(change, Refuse):
            raise UsageError(f"{tool.name} {option} is not supported here: {change.instead}")
        elif change is None:
            rest.append(f"{option}{has_value}{value}")
        else:
            if isinstance(change, Drop) and change.kept_for:
                kept[option] = change.kept_for
            _apply(change, value if has_value else None, given, words, rest)
    rest += [option for option, actions in kept.items() if words[-1] in actions]
    if rest or len(words) > len(tool.words):
        _check_action(tool, words[len(tool.words) :], rest)
    for option, values in properties.items():
        rest += _folded(option, tool.options[option], values)
    written = {word.partition("=")[0] for word in rest}
    if words[-1] in tool.changes:
        rest.append("--yes")
    rest[:0] = tool.defaults.get(words[-1], ())
    rest += [addition for options, addition in tool.unless if not written & set(options)]
    return words + rest


def _class_taken(given: list[str]) -> str:
    """Take the options of ``kafka-run-class`` and the class, and return the class without its package."""
    while given and given[0].startswith("-"):
        if given.pop(0) == "-name" and given:
            given.pop(0)
    return given.pop(0).rpartition(".")[2] if given else ""


def _check_action(tool: KafkaTool, chosen: Sequence[str], rest: Sequence[str]) -> None:
    actions = [option for option, change in tool.options.items() if _is_action(change)]
    if actions and len(chosen) != 1 and not {"--help", "-h"} & set(rest):
        listed = ", ".join(actions[:-1])
        raise UsageError(f"{tool.name} needs one action: {f'{listed} or ' if listed else ''}{actions[-1]}")


def _is_action(change: Change) -> bool:
    return isinstance(change, Word) and change.word is not None


def _folded(option: str, change: Change, properties: Mapping[str, str]) -> list[str]:
    """Return our words for properties; those that mean nothing here stay, and are refused by name."""
    words = change.fold(properties) if isinstance(change, Properties) else None
    return [f"{option}={name}={text}" for name, text in properties.items()] if words is None else words


def _apply(change: Change, value: str | None, given: list[str], words: list[str], rest: list[str]) -> None:
    """Translate one option; its value comes after ``=``, or else from ``given``."""

    def taken() -> list[str]:
        if value is not None:
            return [value]
        return [given.pop(0)] if given else []

    match change:
        case Word(word, values):
            words += [values.get(text.lower(), text.lower()) for text in taken()] if word is None else [word]
        case Drop(has_value=True):
            taken()
        case Drop():
            pass
        case Milliseconds(to):
            rest += [to, *map(_seconds, taken())]
        case Minutes(to):
            rest += [to, *(f"{text}m" if text.isdigit() else text for text in taken())]
        case Rename(to, values, default):
            if default is not None and value is None and (not given or given[0].startswith("-")):
                rest += [to, default]
            elif values or value is not None:
                rest += [to, *(values.get(text, text) for text in taken())]
            else:
                rest.append(to)


def _seconds(text: str) -> str:
    """Return milliseconds in seconds. What is not a number stays as it is; it is refused by name later."""
    return f"{int(text) / 1000:g}" if text.isdigit() else text
