"""Writes the reference pages of the settings from their definitions: ``python -m engine.kafka.config.docs [FOLDER]``.

A test compares the pages in ``docs/reference`` with the generated ones, so they cannot become stale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from inspect import getdoc
from pathlib import Path
from typing import Final

from engine.kafka.config.broker_configs import OWN_KEYS, SUBJECTS
from engine.kafka.config.definition import DOUBLE_MAX, IBP, AnyKey, ConfigDef, DynamicMode
from engine.kafka.config.dynamic_keys import THROTTLE_KEYS
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import INT_MAX, LONG_MAX, ConfigType

_EXTREMES: Final = {LONG_MAX: "2⁶³−1", INT_MAX: "2³¹−1", DOUBLE_MAX: "no limit"}
_CHANGES: Final = {
    DynamicMode.READ_ONLY: "restart",
    DynamicMode.PER_BROKER: "at run time, per broker",
    DynamicMode.CLUSTER_WIDE: "at run time",
}
_NO_EFFECT: Final = "no"

BROKER_INTRO: Final = """\
# Broker settings

Generated from the definitions in `engine/kafka/config/broker_configs` (`make docs`); do not edit.

All settings that Kafka 3.9 knows in ZooKeeper mode, under Kafka's own names. A `server.properties` of Kafka is accepted
as it is. **Effect** says whether klamm does anything with the setting; when the broker starts, it logs each setting
that is set without effect, and each unknown one. Defaults and limits are Kafka's. **Change** says how a new value takes
effect: at a *restart*, or *at run time* by `klamm configs alter` (or Kafka's own tool), *per broker* or also for
all brokers at once.

`listener.name.<listener>.<setting>` is a value for only one listener. Those of TLS and SASL have an effect, and so do
`max.connections` and `max.connection.creation.rate`.

Any value can stand elsewhere: in the environment, in another properties file, in a file of its own. As in Kafka,
`config.providers=secrets` and `config.providers.secrets.class` declare where, with one of Kafka's three classes, and
`${secrets:/run/secrets.properties:key}` is the value (KIP-421). Values that are set at run time may refer to these,
too.
"""

TOPIC_INTRO: Final = """\
# Topic settings

Generated from the definitions in `engine/kafka/config/topic_configs.py` (`make docs`); do not edit.

All settings of a topic that Kafka 3.9 knows. A topic that does not override a setting has the broker's value, named
under **Default from**: if several are named, the first that is set counts. All can be changed at any time. **Effect**
says whether klamm does anything with the setting.
"""


def broker_page() -> str:
    parts = [BROKER_INTRO]
    for subject in SUBJECTS:
        parts.append(f"## {getdoc(subject)}\n\n{_table(_BROKER_COLUMNS, ConfigDef.of(subject))}")
    throttles = "Set at run time only, by `klamm configs alter`; in a file they do nothing."
    parts.append(f"## Throttles\n\n{throttles}\n\n{_table(_BROKER_COLUMNS[:4] + _BROKER_COLUMNS[5:], THROTTLE_KEYS)}")
    own = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in OWN_KEYS.items())
    parts.append(f"## klamm's own\n\nKafka ignores them.\n\n| Setting | Meaning |\n| --- | --- |\n{own}")
    return "\n".join(parts)


def topic_page() -> str:
    return f"{TOPIC_INTRO}\n{_table(_TOPIC_COLUMNS, TOPIC_CONFIG_DEF)}"


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    return {"broker-configs.md": broker_page(), "topic-configs.md": topic_page()}


def write_pages(folder: Path) -> None:
    """Write the pages into a folder, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


Column = tuple[str, Callable[[AnyKey], str]]


def _table(columns: Iterable[Column], keys: Iterable[AnyKey]) -> str:
    columns = tuple(columns)
    lines = [_row(title for title, _ in columns), _row("---" for _ in columns)]
    lines += [_row(cell(key) for _, cell in columns) for key in keys]
    return "".join(f"{line}\n" for line in lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(key: AnyKey) -> str:
    if key.default is None:
        return "–"
    if isinstance(key.default, (int, float)) and not isinstance(key.default, bool) and key.default in _EXTREMES:
        return _EXTREMES[key.default]
    text = key.default_text or ""
    return f"`{text}`".replace(",", ", ") if text else "empty"


def _allowed(key: AnyKey) -> str:
    if key.validator is None:
        return "`true`, `false`" if key.type is ConfigType.BOOLEAN else ""
    if key.validator is IBP:
        return "a Kafka version, such as `3.9` or `2.6-IV0`"
    return f"`{key.validator}`"


def _server_settings(key: AnyKey) -> str:
    return ", ".join(f"`{name}`" for name in key.synonyms) or "–"


_NAME: Final[Column] = ("Setting", lambda key: f"`{key.name}`")
_COMMON: Final[tuple[Column, ...]] = (
    ("Type", lambda key: key.type.name.lower()),
    ("Default", _default),
    ("Allowed", _allowed),
)
_LAST: Final[tuple[Column, ...]] = (
    ("Effect", lambda key: "yes" if key.has_effect else _NO_EFFECT),
    ("What it does", lambda key: key.doc),
)
_BROKER_COLUMNS: Final[tuple[Column, ...]] = (_NAME, *_COMMON, ("Change", lambda key: _CHANGES[key.dynamic]), *_LAST)
_TOPIC_COLUMNS: Final[tuple[Column, ...]] = (_NAME, *_COMMON, ("Default from", _server_settings), *_LAST)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs") / "reference")
