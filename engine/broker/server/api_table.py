"""Writes the API reference page from the registry of handlers: ``python -m engine.broker.server.api_table`` writes it.

A test compares the page with this module's output, so it is always true. It lists what is declared and what is
answered; ``docs/compatibility.md`` says how well.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from engine.broker.handlers.registry import all_handlers
from engine.broker.network.routes import HandlerSpec
from engine.kafka.protocol.api_keys import API_SPECS, KRAFT_ONLY, ApiKey, ApiSpec

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "api-table.md"

_HEAD: Final = """\
# APIs

<!-- Made by `python -m engine.broker.server.api_table` from the registry of handlers (`make docs`); do not edit. -->

Every API of Kafka 3.9 in ZooKeeper mode. *Declared*: the versions that `engine/kafka/protocol` encodes and decodes.
*Answered*: the versions that a broker answers, exactly as ApiVersions lists them. Keys that only KRaft
knows are left out.
"""
_BEHAVIOUR: Final = "Behaviour"
_SENTENCE_END: Final = re.compile(r"(?<=[.;]) (?=[A-Z`])|(?<=\.)$")
_LISTED: Final = "* "


def page() -> str:
    handlers = all_handlers()
    specs = {key: spec for key, spec in API_SPECS.items() if key not in KRAFT_ONLY}
    answered = [handlers[key] for key in specs if key in handlers]
    waiting = [spec for key, spec in specs.items() if key not in handlers]
    parts = [_HEAD, f"{len(answered)} of {len(specs)} are answered.\n", "## Answered\n"]
    parts += _table(("Key", "API", "Answered", "Declared", "In short"), map(_answered_row, answered))
    if waiting:
        parts += ["\n## Declared, not answered yet\n"]
        parts += _table(("Key", "API", "Declared"), map(_waiting_row, waiting))
    return "\n".join(parts) + "\n"


def summary(documentation: str) -> str:
    """Return the first sentence under "Behaviour" of a handler module's docstring.

    Raises:
        ValueError: there is none; the handler must add one.
    """
    lines = inspect.cleandoc(documentation).splitlines()
    if _BEHAVIOUR not in lines:
        raise ValueError(f"no {_BEHAVIOUR} in: {lines[0]}")
    first: list[str] = []
    for line in lines[lines.index(_BEHAVIOUR) + 1 :]:
        if not line.strip() or (first and line.startswith(_LISTED)):
            break
        first.append(line.removeprefix(_LISTED).strip())
    text = " ".join(first).replace("``", "`")
    return _SENTENCE_END.split(text, maxsplit=1)[0].rstrip(";")


def main() -> None:
    """Write the page, or with ``--check`` report whether it is current."""
    if "--check" in sys.argv[1:]:
        sys.exit(
            0
            if PAGE.read_text("utf-8") == page()
            else f"{PAGE.name} is out of date: python -m engine.broker.server.api_table"
        )
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), "utf-8")


def _answered_row(entry: HandlerSpec) -> tuple[str, ...]:
    spec = API_SPECS[entry.key]
    module = inspect.getmodule(entry.handler)
    text = summary((module.__doc__ if module else None) or spec.name)
    return (*_name(spec), _versions(entry.min_version, entry.max_version), _declared(spec), text)


def _waiting_row(spec: ApiSpec) -> tuple[str, ...]:
    return (*_name(spec), _declared(spec))


def _name(spec: ApiSpec) -> tuple[str, str]:
    return str(int(ApiKey(spec.key))), spec.name


def _declared(spec: ApiSpec) -> str:
    return _versions(spec.min_version, spec.max_version)


def _versions(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest}–{highest}"


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    titles = tuple(titles)
    yield _row(titles)
    yield _row("---" for _ in titles)
    yield from map(_row, rows)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    main()
