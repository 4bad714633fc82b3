"""``clusters.toml``: named clusters, so that a user types a name instead of addresses. Reading, checking, adding.

    default = "dev"

    [clusters.dev]
    zookeeper = "127.0.0.1:2181/kafka"
    bootstrap_servers = "127.0.0.1:9092"
    command_config = "/home/me/dev.properties"
    jaas_config = "/home/me/jaas.conf"
    read_only = true
    checkpoints = ["s3://lake/checkpoints", "/srv/spark/*/checkpoint"]
    event_logs = ["/srv/spark/events"]
    logs = ["/var/log/kafka"]
    metrics = "http://{host}:7071/metrics"
    label = "staging"
    colour = "yellow"

    [clusters.dev.properties]
    "security.protocol" = "SASL_SSL"

``properties`` are a Kafka client's properties, instead of the file that ``command_config`` names. ``jaas_config`` is a
JAAS file, for logins that are not in the properties. ``command-config`` and ``jaas-config`` are the same keys. Users
may edit the file by hand: adding a profile appends to it and keeps every existing line.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Operation, Parameter, Phrase

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_TEXT_KEYS = ("zookeeper", "bootstrap_servers", "command_config", "jaas_config", "metrics", "label", "colour")
_HYPHENATED = ("command-config", "jaas-config")
_LIST_KEYS = ("checkpoints", "event_logs", "logs")


class Colour(StrEnum):
    """What distinguishes a cluster from others."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Profile:
    """One named cluster. It has ``zookeeper``, ``bootstrap_servers`` or both.

    ``checkpoints`` and ``event_logs`` are where Spark's queries that read from it leave their traces, ``logs`` where
    its brokers' state-change logs can be read. ``metrics`` is where each broker serves its metrics: a URL with
    ``{host}`` or ``{id}``. ``label`` and ``colour`` help a person distinguish it from others.
    """

    name: str
    zookeeper: str | None = None
    bootstrap_servers: str | None = None
    command_config: str | None = None
    read_only: bool = False
    is_default: bool = False
    checkpoints: tuple[str, ...] = ()
    event_logs: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    metrics: str | None = field(default=None, repr=False)
    """It may hold a password."""
    label: str | None = None
    colour: Colour | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """A Kafka client's properties; they may hold passwords."""
    jaas_config: str | None = None


@dataclass(frozen=True, slots=True)
class Profiles:
    """What a ``clusters.toml`` says."""

    path: Path
    profiles: tuple[Profile, ...]
    default_name: str | None

    def named(self, name: str) -> Profile:
        """Return the profile called ``name``.

        Raises:
            NotFound: there is none; the hint lists those that exist.
        """
        for profile in self.profiles:
            if profile.name == name:
                return profile
        known = ", ".join(profile.name for profile in self.profiles) or "none"
        raise NotFound(f"no profile is called {name!r}", where=str(self.path), hint=f"known profiles: {known}")

    @property
    def default(self) -> Profile | None:
        """The profile that is used when no cluster is named.

        Raises:
            NotFound: the file names one that it does not have. Only those who rely on it are kept from working.
        """
        if self.default_name is None:
            return None
        try:
            return self.named(self.default_name)
        except NotFound as error:
            another = Phrase(error.hint or "", "; choose another: ", Operation.SET_DEFAULT_PROFILE)
            raise NotFound(
                f"there is no profile {self.default_name!r}, which is the default", where=error.where, hint=another
            ) from None


def profiles_path(environment: Mapping[str, str]) -> Path:
    """Return where ``clusters.toml`` is looked for, whether it exists or not."""
    return user_folder(environment, "XDG_CONFIG_HOME", ".config") / "clusters.toml"


def user_folder(environment: Mapping[str, str], variable: str, below_home: str) -> Path:
    """Return klamm's own folder for one kind of file: below what the variable names, else below the home."""
    base = environment.get(variable)
    if base:
        return Path(base) / "klamm"
    try:
        home = Path(environment.get("HOME", "~")).expanduser()
    except RuntimeError:
        # A container's user may have neither a home nor a name.
        home = Path("/")
    return home / below_home / "klamm"


def load_profiles(path: Path) -> Profiles:
    """Read the file; one that does not exist has no profiles.

    Raises:
        BadRequest: the file is not TOML, or an entry is not a profile.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Profiles(path, (), None)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"not TOML: {error}", where=str(path)) from error
    default = document.get("default")
    clusters = document.get("clusters", {})
    if not isinstance(clusters, dict) or not (default is None or isinstance(default, str)):
        raise BadRequest('must have default = "NAME" and tables [clusters.NAME]', where=str(path))
    return Profiles(path, tuple(_profile(path, name, entry, default) for name, entry in clusters.items()), default)


def add_profile(profiles: Profiles, profile: Profile) -> None:
    """Append a profile to the file, which is created if it is missing; the first one becomes the default.

    Raises:
        BadRequest: the name is taken or cannot be a name, or the profile names no address.
    """
    if not _NAME.fullmatch(profile.name):
        hint = "use letters, digits, dot, underscore, hyphen"
        raise BadRequest(f"a profile cannot be called {profile.name!r}", hint=hint)
    if any(known.name == profile.name for known in profiles.profiles):
        hint = "if its cluster has moved, correct the addresses in this file; or remove it, and add it again"
        raise BadRequest(f"a profile called {profile.name!r} exists already", where=str(profiles.path), hint=hint)
    if not (profile.zookeeper or profile.bootstrap_servers):
        needed = Phrase("give ", Parameter.ZOOKEEPER, ", ", Parameter.BOOTSTRAP_SERVERS, " or both")
        raise BadRequest("a profile needs an address", hint=needed)
    text = profiles.path.read_text(encoding="utf-8-sig") if profiles.path.exists() else ""
    text = f"{text.rstrip()}\n\n{_table(profile)}".lstrip()
    if profile.is_default or not profiles.profiles:
        text = _with_default(text, profile.name)
    _replace(profiles.path, text)


def set_default(profiles: Profiles, name: str) -> None:
    """Make a profile the default, which is used when no cluster is named.

    Raises:
        NotFound: there is no such profile.
    """
    profiles.named(name)
    _replace(profiles.path, _with_default(profiles.path.read_text(encoding="utf-8-sig"), name))


def remove_profile(profiles: Profiles, name: str) -> None:
    """Remove a profile's table from the file, and a default that names it. The rest, comments too, stays.

    Raises:
        NotFound: there is no such profile.
    """
    profiles.named(name)
    text = profiles.path.read_text(encoding="utf-8-sig")
    tables = re.split(r"(?m)^(?=\s*\[)", text)
    head, own = tables[0], [table for table in tables[1:] if not _is_of(table, name)]
    if profiles.default_name == name:
        head = re.sub(r"(?m)^default\s*=.*\n?", "", head, count=1)
    _replace(profiles.path, f"{head}{''.join(own)}".strip() + "\n")


def _is_of(table: str, name: str) -> bool:
    """Whether a table of the file is this profile's, however its name is quoted."""
    document = tomllib.loads(table)
    return name in document.get("clusters", {})


def _profile(path: Path, name: str, entry: Any, default: str | None) -> Profile:
    where = f"{path}: [clusters.{name}]"
    if not isinstance(entry, dict):
        raise BadRequest("not a table", where=where)
    entry = {(key.replace("-", "_") if key in _HYPHENATED else key): value for key, value in entry.items()}
    known = (*_TEXT_KEYS, "read_only", *_LIST_KEYS, "properties")
    unknown = sorted(set(entry) - set(known))
    if unknown:
        raise BadRequest(f"unknown key {unknown[0]!r}", where=where, hint=f"known: {', '.join(known)}")
    for key in _TEXT_KEYS:
        if not isinstance(entry.get(key, ""), str):
            raise BadRequest(f"{key} must be text", where=where)
    for key in _LIST_KEYS:
        places = entry.get(key, [])
        if not isinstance(places, list) or not all(isinstance(place, str) and place for place in places):
            raise BadRequest(f"{key} must be a list of strings", where=where)
    properties = _flat(entry.get("properties", {}), f"{where}: properties")
    if properties and entry.get("command_config"):
        raise BadRequest("has both command_config and properties", where=where, hint="keep one of them")
    if entry.get("colour", Colour.GREEN) not in set(Colour):
        raise BadRequest(f"colour must be one of {', '.join(Colour)}", where=where)
    if not isinstance(entry.get("read_only", False), bool):
        raise BadRequest("read_only must be true or false", where=where)
    if not (entry.get("zookeeper") or entry.get("bootstrap_servers")):
        raise BadRequest("names neither zookeeper nor bootstrap_servers", where=where)
    return Profile(
        name,
        entry.get("zookeeper"),
        entry.get("bootstrap_servers"),
        entry.get("command_config"),
        bool(entry.get("read_only", False)),
        name == default,
        tuple(entry.get("checkpoints", ())),
        tuple(entry.get("event_logs", ())),
        tuple(entry.get("logs", ())),
        entry.get("metrics"),
        entry.get("label"),
        Colour(entry["colour"]) if "colour" in entry else None,
        properties,
        entry.get("jaas_config"),
    )


def _flat(table: Any, where: str) -> dict[str, str]:
    """Return the properties of a table. TOML reads ``ssl.protocol = 1`` without quotes as tables within each other."""
    if not isinstance(table, dict):
        raise BadRequest("not a table", where=where)
    settings: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            settings |= {f"{key}.{name}": text for name, text in _flat(value, where).items()}
        elif isinstance(value, str | int | float):
            settings[key] = str(value).lower() if isinstance(value, bool) else str(value)
        else:
            raise BadRequest(f"{key} must be a string, a number, true or false", where=where)
    return settings


def _table(profile: Profile) -> str:
    lines = [f'[clusters."{profile.name}"]' if "." in profile.name else f"[clusters.{profile.name}]"]
    for key in _TEXT_KEYS:
        value = getattr(profile, key)
        if value:
            lines.append(f"{key} = {_quoted(value)}")
    if profile.read_only:
        lines.append("read_only = true")
    for key in _LIST_KEYS:
        if places := getattr(profile, key):
            lines.append(f"{key} = [{', '.join(_quoted(place) for place in places)}]")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _with_default(text: str, name: str) -> str:
    line = f"default = {_quoted(name)}"
    head, table, rest = text.partition("[clusters")
    if re.search(r"(?m)^default\s*=.*$", head):
        return re.sub(r"(?m)^default\s*=.*$", lambda _: line, head, count=1) + table + rest
    return f"{line}\n\n{text}"


def _replace(path: Path, text: str) -> None:
    # The file may be a link into a folder under version control.
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def without_login(url: str) -> str:
    """Return a URL, or the pattern of one, without the name and password in it."""
    return re.sub(r"//[^/]*@", "//[redacted]@", url)
