"""Where a broker serves its metrics, and how they are read: Prometheus' format and Jolokia's protocol over HTTP.

JMX itself needs Java, which the caller provides. TLS uses the ``ssl.*`` properties of the cluster's client.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from engine.admin.brokers.metrics import Bean, Beans, Teller, bean_of, beans_of_page, is_of_klamm, numbers
from engine.admin.cluster.errors import BadRequest, Unreachable
from engine.admin.cluster.profiles import without_login
from engine.common.errors import ConfigError
from engine.common.model import address_text
from engine.kafka.client.config_providers import resolve_references
from engine.kafka.client.tls.context import TlsSettings, client_context, tls_failure

SCHEMES: Final = ("http", "https", "jmx", "jmxs")
_PAGE_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """Where one broker serves its metrics. A login never shows.

    ``is_tls`` is about HTTP, and about the registry of JMX: without it, a broker says itself whether it speaks TLS.
    """

    teller: Teller
    host: str
    port: int
    path: str = ""
    is_tls: bool = False
    user: str | None = None
    password: str | None = None
    tls: TlsSettings = field(default_factory=TlsSettings)

    def __str__(self) -> str:
        scheme = ("jmx" if self.teller is Teller.JMX else "http") + "s" * self.is_tls
        return f"{scheme}://{address_text(self.host, self.port)}{self.path}"

    def __repr__(self) -> str:
        return f"Source({self})"


ReadJmx = Callable[[Mapping[int, Source], Sequence[str], float, float], Awaitable[Mapping[int, Beans | str]]]
"""Reads MBeans of several brokers by JMX: where each is, which, the seconds that each has, and the seconds for all.
Gives the reason why a broker reports nothing. It never fails."""


_REFERENCE: Final = re.compile(r"\$\{[^}:]*+:[^}]*+\}")


def resolved_pattern(pattern: str) -> str:
    """Return the address of brokers' metrics, with what stands elsewhere: ``${env:NAME}``, ``${file:PATH:KEY}``.

    Raises:
        BadRequest: it is no URL, names neither host nor id, or refers to something that is not there.
    """
    check_pattern(pattern)

    def value(reference: re.Match[str]) -> str:
        return quote(resolve_references({"metrics": reference[0]}, os.environ)["metrics"], safe="")

    try:
        return _REFERENCE.sub(value, pattern)
    except ConfigError as error:
        raise BadRequest(str(error)) from error


def check_pattern(pattern: str) -> None:
    """Refuse what cannot be the address of brokers' metrics, whatever its references stand for.

    Raises:
        BadRequest: it is no URL, or names neither host nor id.
    """
    if "{host}" not in pattern and "{id}" not in pattern:
        hint = "write {host} or {id} where brokers differ: http://{host}:7071/metrics, jmx://{host}:9999"
        raise BadRequest(f"all brokers would have the same metrics: {without_login(pattern)}", hint=hint)
    source_of(_REFERENCE.sub("elsewhere", pattern), 0, "localhost")


def source_of(pattern: str, broker_id: int, host: str, tls: TlsSettings | None = None) -> Source:
    """Return a broker's source. The path says which of the two an HTTP server speaks: Jolokia's has ``/jolokia``.

    Raises:
        BadRequest: the pattern is no URL with a port.
    """
    shown_host = f"[{host}]" if ":" in host else host
    url = pattern.replace("{host}", shown_host).replace("{id}", str(broker_id))
    hint = "write http://{host}:7071/metrics, http://{host}:8778/jolokia, jmx://{host}:9999 or jmxs://{host}:9999"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadRequest(f"not the address of metrics: {error}", hint=hint) from error
    is_jmx = parts.scheme in ("jmx", "jmxs")
    if parts.scheme not in SCHEMES or not parts.hostname or (is_jmx and port is None):
        # The login that it may hold stays out of the message.
        raise BadRequest("not the address of metrics", where=url.rpartition("@")[2], hint=hint)
    jolokia = "jolokia" in parts.path.split("/")
    teller = Teller.JMX if is_jmx else Teller.JOLOKIA if jolokia else Teller.PROMETHEUS
    query = f"?{parts.query}" if parts.query else ""
    return Source(
        teller,
        parts.hostname,
        port or (443 if parts.scheme == "https" else 80),
        "" if teller is Teller.JMX else (parts.path or "/metrics") + query,
        parts.scheme in ("https", "jmxs"),
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        tls or TlsSettings(),
    )


def sources_of(pattern: str, hosts: Mapping[int, str], tls: TlsSettings | None = None) -> dict[int, Source | str]:
    """Return the source of each broker, by its id; or why it has none: what one reports would be shown of several.

    Raises:
        BadRequest: the pattern is no URL with a port.
    """
    sources: dict[int, Source | str] = {
        broker_id: source_of(pattern, broker_id, host, tls) for broker_id, host in hosts.items()
    }
    count = Counter(map(str, sources.values()))
    reason = "several brokers would have the address {}: write {{id}} where they differ"
    return {
        broker_id: source if count[str(source)] == 1 else reason.format(source) for broker_id, source in sources.items()
    }


@dataclass(frozen=True, slots=True)
class Reading:
    """What a broker reported, and who it turned out to be."""

    source: Source
    beans: Beans


async def read_http(source: Source, patterns: Sequence[str]) -> Reading:
    """Read MBeans over HTTP.

    Raises:
        Unreachable: nothing answers there, or the answer has no metrics.
    """
    if source.teller is Teller.JOLOKIA:
        return Reading(source, await _read_jolokia(source, patterns))
    page = (await _ask(source, None)).decode("utf-8", "replace")
    if is_of_klamm(page):
        # Its page has counts; by the other protocol it reports rates, too.
        jolokia = replace(source, teller=Teller.JOLOKIA, path="/jolokia")
        return Reading(jolokia, await _read_jolokia(jolokia, patterns))
    beans = await asyncio.to_thread(beans_of_page, page)
    if not beans:
        raise Unreachable("its page has none of Kafka's metrics", where=str(source))
    return Reading(source, beans)


async def _read_jolokia(source: Source, patterns: Sequence[str]) -> Beans:
    asked = [{"type": "read", "mbean": pattern} for pattern in patterns]
    body = await _ask(source, json.dumps(asked).encode())
    try:
        # A broker has many topics.
        return await asyncio.to_thread(_beans, patterns, body)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise Unreachable("its answer is not Jolokia's", where=str(source)) from error


def _beans(patterns: Sequence[str], body: bytes) -> Beans:
    """Return what the answers hold. An MBean that is not there has an answer with an error."""
    answers: list[dict[str, Any]] = json.loads(body)
    beans: Beans = {}
    for pattern, answer in zip(patterns, answers, strict=True):
        if answer["status"] == 200:
            values = answer["value"] if "*" in pattern else {pattern: answer["value"]}
            for name, attributes in values.items():
                bean: Bean | None = bean_of(name)
                if bean is not None:
                    beans[bean] = numbers(attributes)
    return beans


async def _ask(source: Source, body: bytes | None) -> bytes:
    """Return what an HTTP server answers.

    Raises:
        Unreachable: it does not, or says no.
    """
    try:
        context = await asyncio.to_thread(client_context, source.tls) if source.is_tls else None
        reader, writer = await asyncio.open_connection(source.host, source.port, ssl=context)
    except ConfigError as error:
        raise Unreachable(str(error), where=str(source)) from error
    except OSError as error:
        if source.is_tls and isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError):
            failure = await tls_failure(error, source.tls, source.host, source.port)
            raise Unreachable("; ".join(filter(None, (str(failure), failure.hint))), where=str(source)) from error
        raise Unreachable(f"cannot connect: {error.strerror or error}", where=str(source)) from error
    try:
        writer.write(_request(source, body))
        await writer.drain()
        answer = await _until_end(reader)
    except OSError as error:
        raise Unreachable(f"the connection broke: {error.strerror or error}", where=str(source)) from error
    finally:
        writer.close()
    return _content(source, answer)


async def _until_end(reader: asyncio.StreamReader) -> bytes:
    """Read until the server closes the connection, as it was asked to."""
    parts: list[bytes] = []
    size = 0
    while size <= _PAGE_BYTES_MAX and (part := await reader.read(256 * 1024)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _request(source: Source, body: bytes | None) -> bytes:
    lines = [
        f"{'GET' if body is None else 'POST'} {source.path} HTTP/1.1",
        f"Host: {address_text(source.host, source.port)}",
        "Connection: close",
        "Accept-Encoding: identity",
    ]
    if source.user is not None:
        from base64 import b64encode

        login = b64encode(f"{source.user}:{source.password or ''}".encode()).decode()
        lines.append(f"Authorization: Basic {login}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


class _Received:
    """What the parser of Python's library takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> Any:
        from io import BytesIO

        return BytesIO(self._data)


def _content(source: Source, answer: bytes) -> bytes:
    from http.client import HTTPException, HTTPResponse

    try:
        response = HTTPResponse(_Received(answer))  # type: ignore[arg-type]
        response.begin()
        content = response.read()
    except HTTPException as error:
        raise Unreachable("its answer is not HTTP", where=str(source)) from error
    if response.status != 200:
        raise Unreachable(f"it answers {response.status} {response.reason}".rstrip(), where=str(source))
    return content
