"""Jolokia's protocol, JMX over HTTP: read, search, list and version, by GET and POST. Source: Jolokia 1.7's manual."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from engine.broker.metrics.mbean import OF_PARTITIONS, MBean

PROTOCOL: Final = "7.2"
REQUESTS_MAX: Final = 1000
"""Reads that one POST may ask for."""
PATTERN_CHARS_MAX: Final = 1000
"""A longer name counts only as it stands."""

_TYPES: Final = {bool: "boolean", int: "long", float: "double", str: "java.lang.String"}


class _Refused(Exception):
    """What is asked for is not there, or makes no sense. Holds Jolokia's status and the Java class that it names."""

    def __init__(self, status: int, java_class: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.java_class = java_class


def requests_of(path: str, body: bytes | None) -> Any:
    """Return the requests of a GET (its path after ``/jolokia``) or of a POST: one, or a list of them."""
    if body is not None:
        try:
            # No request has a number with a fraction, and not each can be written back.
            asked = json.loads(body, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError) as error:
            return {"type": "", "error": f"the body is not JSON: {error}"}
        return asked[:REQUESTS_MAX] if isinstance(asked, list) else asked
    parts = [re.sub(r"!(.)", r"\1", unquote(part)) for part in re.split(r"(?<!!)/", path.strip("/"))]
    kind, *rest = parts if parts != [""] else ["version"]
    request: dict[str, Any] = {"type": kind}
    if kind == "list":
        request["path"] = "/".join(rest) if rest else None
    elif rest:
        request["mbean"] = rest[0]
        if len(rest) > 1 and rest[1]:
            request["attribute"] = rest[1].split(",") if "," in rest[1] else rest[1]
        if len(rest) > 2:
            request["path"] = "/".join(rest[2:])
    return request


def asks_for_partitions(asked: Any) -> bool:
    """Return whether a request may be about single partitions, very many MBeans that are otherwise not needed."""
    for request in asked if isinstance(asked, list) else [asked]:
        name = request.get("mbean") if isinstance(request, dict) else None
        if not isinstance(name, str):
            return True
        domain, _, properties = name.partition(":")
        if len(name) > PATTERN_CHARS_MAX:
            return True
        wanted = dict(_parse(properties)).get("type", "*")
        for known, kind in OF_PARTITIONS:
            if re.fullmatch(_glob(domain), known) and re.fullmatch(_glob(wanted), kind):
                return True
    return False


def answer(asked: Any, mbeans: Iterable[MBean], product: str) -> str:
    """Return the JSON that answers one request or several."""
    known: dict[str, MBean] = {mbean.object_name: mbean for mbean in mbeans}
    answers = (
        [_answer_one(request, known, product) for request in asked]
        if isinstance(asked, list)
        else _answer_one(asked, known, product)
    )
    return json.dumps(answers, allow_nan=False)


def _answer_one(request: Any, known: dict[str, MBean], product: str) -> dict[str, Any]:
    shown = {key: value for key, value in request.items() if value is not None} if isinstance(request, dict) else {}
    try:
        value = _kind(shown)(shown, known, product)
    except _Refused as refused:
        return {
            "request": shown,
            "status": refused.status,
            "error_type": refused.java_class,
            "error": f"{refused.java_class} : {refused}",
            "stacktrace": "",
        }
    return {"request": shown, "value": value, "timestamp": int(time.time()), "status": 200}


def _kind(request: dict[str, Any]) -> Callable[[dict[str, Any], dict[str, MBean], str], Any]:
    kind = str(request.get("type", "")).lower()
    kinds = {"read": _read, "search": _search, "list": _list, "version": _version}
    if kind not in kinds:
        raise _Refused(
            400,
            "java.lang.IllegalArgumentException",
            request.get("error") or f"'{kind}' is not served; this broker knows {', '.join(kinds)}",
        )
    return kinds[kind]


def _version(request: dict[str, Any], known: dict[str, MBean], product: str) -> Any:
    return {"agent": "1.7.2", "protocol": PROTOCOL, "info": {"product": "klamm", "version": product}}


def _search(request: dict[str, Any], known: dict[str, MBean], product: str) -> Any:
    return [name for name in known if _pattern(_mbean(request))(name)]


def _read(request: dict[str, Any], known: dict[str, MBean], product: str) -> Any:
    name = _mbean(request)
    wanted = request.get("attribute")
    if "*" in name or "?" in name:
        matches = _pattern(name)
        values_of = {each: _attributes(known[each], wanted, is_pattern=True) for each in known if matches(each)}
        if not values_of:
            raise _Refused(404, "javax.management.InstanceNotFoundException", f"No MBean matches {name}")
        return {each: values for each, values in values_of.items() if values}
    mbean = known.get(name) or next((known[each] for each in known if _pattern(name)(each)), None)
    if mbean is None:
        raise _Refused(404, "javax.management.InstanceNotFoundException", name)
    values = _attributes(mbean, wanted, is_pattern=False)
    return values[wanted] if isinstance(wanted, str) else values


def _attributes(mbean: MBean, wanted: Any, *, is_pattern: bool) -> dict[str, Any]:
    names = list(mbean.attributes) if not wanted else [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _Refused(400, "java.lang.IllegalArgumentException", "an attribute is a name, or a list of names")
    missing = [name for name in names if name not in mbean.attributes]
    if missing and not is_pattern:
        raise _Refused(404, "javax.management.AttributeNotFoundException", f"No such attribute: {missing[0]}")
    return {name: _plain(mbean.attributes[name]) for name in names if name in mbean.attributes}


def _list(request: dict[str, Any], known: dict[str, MBean], product: str) -> Any:
    tree: dict[str, Any] = {}
    for name, mbean in known.items():
        domain, _, properties = name.partition(":")
        tree.setdefault(domain, {})[properties] = {
            "attr": {
                each: {"rw": False, "type": _TYPES.get(type(value), "java.lang.Object"), "desc": each}
                for each, value in mbean.attributes.items()
            },
            "desc": "",
        }
    steps = [step for step in str(request.get("path") or "").split("/") if step]
    for step in steps:
        if not isinstance(tree, dict) or step not in tree:
            raise _Refused(404, "java.lang.IllegalArgumentException", f"nothing is listed at {'/'.join(steps)}")
        tree = tree[step]
    return tree


def _mbean(request: dict[str, Any]) -> str:
    name = request.get("mbean")
    if not isinstance(name, str) or ":" not in name:
        raise _Refused(400, "javax.management.MalformedObjectNameException", f"no name of an MBean: {name}")
    return name


def _plain(value: object) -> object:
    """Return a value for JSON; Jolokia writes what JSON has no number for as text."""
    return str(value).replace("nan", "NaN") if isinstance(value, float) and not math.isfinite(value) else value


@lru_cache(maxsize=256)
def _pattern(name: str) -> Callable[[str], bool]:
    """Return a predicate that matches names against a JMX pattern: ``*`` and ``?``, and ``,*`` at the end."""
    if len(name) > PATTERN_CHARS_MAX:
        raise _Refused(404, "javax.management.InstanceNotFoundException", f"{name[:100]}…")
    domain, _, properties = name.partition(":")
    domain_fits = re.compile(_glob(domain)).fullmatch
    wanted = dict(_parse(properties))
    is_open = wanted.pop("*", None) is not None
    fits = {key: re.compile(_glob(value)).fullmatch for key, value in wanted.items()}

    def matches(other: str) -> bool:
        other_domain, _, other_text = other.partition(":")
        if not domain_fits(other_domain):
            return False
        properties = _properties(other_text)
        if not (properties.keys() >= fits.keys() if is_open else properties.keys() == fits.keys()):
            return False
        return all(fit(properties[key]) for key, fit in fits.items())

    return matches


def _glob(text: str) -> str:
    """Return a regular expression that never goes back behind a star: what follows it stands where it first can."""
    first, *others = ("".join("." if c == "?" else re.escape(c) for c in part) for part in text.split("*"))
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>.*?{part})" for part in middle) + ".*" + last


def _parse(text: str) -> list[tuple[str, str]]:
    """Return keys and values; a star stands for further ones."""
    # A key begins behind a comma: to look for one everywhere takes time by the square of the length.
    parts = re.findall(r'(?<![^,])(?:([^=,]+)=("(?:\\.|[^"\\])*"|[^,]*)|(\*))', text)
    return [(key or star, value) for key, value, star in parts]


@lru_cache(maxsize=65_536)
def _properties(text: str) -> dict[str, str]:
    """Return those of a name of this broker's."""
    return dict(_parse(text))
