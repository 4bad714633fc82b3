"""Turns a word of the command line into its value, for the plain types that our options have.

Typer makes a pydantic adapter per option, which takes longer than the rest of a short command. Our options are
strings, numbers, flags, paths and lists of these, which this module converts. Options of other types keep Typer's
conversion.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from typer._click.core import Command, Context, Parameter
from typer._click.exceptions import BadParameter
from typer._coercion import RuntimeParam

_DASH = "klamm.dash"
_FILE_METAVARS = frozenset({"FILE", "FOLDER", "PATH", "FILE|FOLDER", "DIR"})
"""Metavars of options whose value stays a text, since it may be a URI or is read late."""

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "f", "no", "n", "off"})


def _flag(value: Any) -> bool:
    word = str(value).lower()
    if isinstance(value, bool) or word in _TRUE | _FALSE:
        return value is True or word in _TRUE
    raise ValueError(f"{value!r} is neither true nor false")


def _whole_number(value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number") from None


def _number(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number") from None


def _milliseconds(value: Any) -> int:
    """A plain number is milliseconds, as Kafka's tools take it."""
    text = str(value)
    if text.lstrip("-").isdigit():
        return int(text)
    from engine.common.quantities import parse_duration_s

    return round(parse_duration_s(text) * 1000)


def _seconds(value: Any) -> float:
    from engine.common.quantities import parse_duration_s

    return value if isinstance(value, float) else parse_duration_s(str(value))


def _bytes(value: Any) -> int:
    text = str(value)
    if text.lstrip("-").isdigit():
        return int(text)
    from engine.common.quantities import parse_rate

    return parse_rate(text)


_QUANTITIES: dict[tuple[object, str | None], Callable[[Any], Any]] = {
    (int, "MS"): _milliseconds,
    (int, "BYTES"): _bytes,
    (int, "BYTES/S"): _bytes,
    (float, "SECONDS"): _seconds,
}
"""Converters by type and metavar, for options that also take a unit."""

_CONVERTERS: dict[object, Callable[[Any], Any]] = {
    str: str,
    int: _whole_number,
    float: _number,
    bool: _flag,
    Path: Path,
}


@dataclass(frozen=True)
class PlainParam(RuntimeParam):
    """Converts the value, or each item of it, and checks its bounds."""

    convert: Callable[[Any], Any]
    is_file: bool

    def _coerce_value(self, value: Any, param: Any, ctx: Context) -> Any:
        try:
            if isinstance(value, (list, tuple)):
                return [self._one(item, param, ctx) for item in value]
            return self._one(value, param, ctx)
        except ValueError as error:
            raise BadParameter(str(error), ctx=ctx, param=param) from None

    def _one(self, item: Any, param: Any, ctx: Context) -> Any:
        converted = self.convert(item)
        if self.is_file and str(converted) == "-":
            self._check_dash(param, ctx)
        low, high = self.parameter_info.min, self.parameter_info.max
        if (low is not None and converted < low) or (high is not None and converted > high):
            bounds = " and ".join(
                [*([] if low is None else [f"at least {low}"]), *([] if high is None else [f"at most {high}"])]
            )
            raise ValueError(f"{converted} is not {bounds}")
        return converted

    def _check_dash(self, param: Any, ctx: Context) -> None:
        """Refuse ``-`` where it is not stdin or stdout, so that no file gets that name, and where it is taken."""
        if not self.parameter_info.allow_dash:
            raise ValueError("- is neither stdin nor stdout here: name a file")
        holder = ctx.meta.setdefault(_DASH, param.name)
        if holder != param.name:
            raise ValueError("- can stand for one file only: name the other")


class PlainCoercion(Command):
    """A command, or a group, whose parameters of a plain type have our conversion."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return the parameters, the help option among them."""
        params = super().get_params(ctx)
        _use_plain_coercion(params)
        return params


def _use_plain_coercion(params: Iterable[Parameter]) -> None:
    for param in params:
        descriptor = getattr(param, "type_descriptor", None)
        if descriptor is None or getattr(param, "_runtime_param", None) is not None:
            continue
        item, metavar = _item_type(descriptor.annotation), descriptor.parameter_info.metavar
        convert = _QUANTITIES.get((item, metavar)) or _CONVERTERS.get(item)
        if convert is not None and descriptor.parameter_info.parser is None:
            is_file = item is Path or (item is str and metavar in _FILE_METAVARS)
            plain = PlainParam(descriptor.parameter_info, descriptor.annotation, convert, is_file)
            param._runtime_param = plain  # type: ignore[attr-defined]


def _item_type(annotation: Any) -> Any:
    """Return ``X`` of ``X``, ``X | None``, ``list[X]`` and ``list[X] | None``."""
    if get_origin(annotation) in (Union, types.UnionType):
        others = [part for part in get_args(annotation) if part is not type(None)]
        return _item_type(others[0]) if len(others) == 1 else annotation
    if get_origin(annotation) is list:
        return get_args(annotation)[0]
    return annotation
