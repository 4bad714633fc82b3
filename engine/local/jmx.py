"""Reads MBeans by JMX. Java alone speaks its protocol, so a small Java program reads them from all brokers at once."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

from engine.admin.brokers.metrics import Beans, bean_of, numbers
from engine.admin.brokers.metrics_sources import Source
from engine.common.errors import ConfigError, OperationError
from engine.common.model import address_text
from engine.kafka.client.tls.context import TlsSettings, client_context, own_pkcs12, trusted_pem
from engine.local.java import find_java

_PROGRAM: Final = Path(__file__).with_name("JmxReader.java")

_NO_TLS: Final = "what listens there does not speak TLS: write jmx:// instead of jmxs://"
_NAME: Final = "its certificate is for another host name; ssl.endpoint.identification.algorithm= turns the check off"
_WANTS_KEY: Final = "it wants a client's certificate that it trusts: set ssl.keystore.location"
_TROUBLES: Final = {
    "Credentials required": "it wants a login: put USER:PASSWORD@ before the host",
    "Invalid username or password": "it refuses the login: the name or the password is wrong",
    "non-JRMP server": "what listens there is no registry of JMX, or one with TLS: for that write jmxs://",
    "SSL peer shut down incorrectly": _NO_TLS,
    "Unsupported or unrecognized SSL message": _NO_TLS,
    "unable to find valid certification path": "no CA in the trust store has signed its certificate: add its CA to "
    "ssl.truststore.location",
    "No subject alternative": _NAME,
    "No name matching": _NAME,
    "NotAfter": "its certificate has expired",
    "bad_certificate": _WANTS_KEY,
    "certificate_required": _WANTS_KEY,
    "certificate_unknown": _WANTS_KEY,
    "EOFException": "it ended the connection: what listens there is no registry of JMX",
    "Broken pipe": f"it ended the connection; perhaps {_WANTS_KEY}",
}
"""What a part of Java's words means."""


async def read_jmx(
    sources: Mapping[int, Source], patterns: Sequence[str], limit_s: float, within_s: float
) -> dict[int, Beans | str]:
    """Read MBeans of brokers. A broker that reports nothing has the reason.

    Args:
        limit_s: how long one broker may take.
        within_s: how long all may take, with the start of Java.
    """
    try:
        java = await asyncio.to_thread(find_java, user="reading JMX")
        if not java.has_module("jdk.compiler"):
            return dict.fromkeys(sources, f"{java.program} has no compiler, which reading JMX needs: set JAVA_HOME")
        output = await _run(java.program, sources, patterns, limit_s, within_s)
    except (ConfigError, OperationError, OSError) as error:
        return dict.fromkeys(sources, str(error))
    return await asyncio.to_thread(_by_broker, sources, output)


async def _run(
    java: Path, sources: Mapping[int, Source], patterns: Sequence[str], limit_s: float, within_s: float
) -> bytes:
    lines = [await asyncio.to_thread(_tls_line, next(iter(sources.values())).tls)]
    for broker, source in sources.items():
        words = (
            broker,
            address_text(source.host, source.port),
            "tls" * source.is_tls,
            source.user or "",
            source.password or "",
        )
        lines.append("\t".join(map(str, words)) + "\n")
    process = await asyncio.create_subprocess_exec(
        *(str(java), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *(str(_PROGRAM), str(round(limit_s * 1000)), *patterns),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(within_s):
            output, complaint = await process.communicate("".join(lines).encode())
    except TimeoutError:
        raise OperationError(f"Java did not end within {within_s:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = complaint.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise OperationError(f"Java ended with {process.returncode}: {''.join(last)}")
    return output


def _tls_line(settings: TlsSettings) -> str:
    """Return what TLS needs, in one line. Raises ConfigError: a store cannot be used."""
    if settings.entries:
        # It says better than Java what is wrong with a store.
        client_context(settings)
    password = token_urlsafe()
    stores = (trusted_pem(settings).encode(), own_pkcs12(settings, password), password.encode())
    words = [b64encode(store).decode() for store in stores]
    return "\t".join([*words, "names" * settings.checks_host_name]) + "\n"


def _explained(reason: str) -> str:
    return next((sentence for part, sentence in _TROUBLES.items() if part in reason), reason)


def _by_broker(sources: Mapping[int, Source], output: bytes) -> dict[int, Beans | str]:
    by_broker: dict[int, Beans | str] = {broker: {} for broker in sources}
    for line in output.splitlines():
        row = json.loads(line)
        beans = by_broker[row["broker"]]
        if "error" in row:
            by_broker[row["broker"]] = _explained(row["error"])
        elif isinstance(beans, dict) and (bean := bean_of(row["mbean"])) is not None:
            beans[bean] = numbers(row["attributes"])
    return {broker: beans or "it has none of Kafka's MBeans" for broker, beans in by_broker.items()}
