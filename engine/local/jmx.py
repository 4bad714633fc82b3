"""Reads MBeans by JMX. Java alone speaks its protocol, so a small Java program reads them from all brokers at once.

The program is compiled once, into the user's cache.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

from engine.admin.brokers.metrics import Beans, bean_of, numbers
from engine.admin.brokers.metrics_sources import Source
from engine.common.errors import ConfigError, OperationError
from engine.common.model import address_text
from engine.kafka.client.tls.context import TlsSettings, client_context, own_pkcs12, trusted_pem
from engine.local.java import OLDEST_JAVA, Java, find_java

_SOURCE: Final = Path(__file__).with_name("JmxReader.java")
_SHORT_LIVED: Final = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

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
        async with asyncio.timeout(within_s):
            java = await asyncio.to_thread(find_java, user="reading JMX")
            program = await asyncio.to_thread(_program, java, within_s)
            if program is None:
                return dict.fromkeys(sources, f"{java.program} has no compiler, which reading JMX needs: set JAVA_HOME")
            output = await _run((java.program, *_SHORT_LIVED, *program), sources, patterns, limit_s)
    except TimeoutError:
        return dict.fromkeys(sources, f"Java did not end within {within_s:g} s")
    except (ConfigError, OperationError, OSError) as error:
        return dict.fromkeys(sources, str(error))
    return await asyncio.to_thread(_by_broker, sources, output)


def _program(java: Java, within_s: float) -> list[str] | None:
    """Return what Java runs: the classes in the user's cache, which this makes if they are missing.

    Where they cannot be made it is the source, which Java compiles each time, for most of a second of CPU. None: they
    are missing, and this Java has no compiler.
    """
    # Path's own expanduser raises if there is no home.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "klamm")  # noqa: PTH111
    classes = cache / f"jmx-reader-{sha256(_SOURCE.read_bytes()).hexdigest()[:16]}"
    # A cleaned cache may still have its folders.
    main_class = classes / f"{_SOURCE.stem}.class"
    has_compiler, has_place = java.has_module("jdk.compiler"), cache.is_absolute()
    if has_compiler and has_place and not main_class.is_file():
        with suppress(OSError, subprocess.SubprocessError):
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as work:
                _compile(java, Path(work), within_s)
                # Another process may have been faster.
                Path(work, "classes").rename(classes)
    if has_place and main_class.is_file():
        return ["-cp", str(classes), _SOURCE.stem]
    return [str(_SOURCE)] if has_compiler else None


def _compile(java: Java, work: Path, within_s: float) -> None:
    compiler = (java.program, *_SHORT_LIVED, "-m", "jdk.compiler/com.sun.tools.javac.Main")
    words = ("--release", str(OLDEST_JAVA), "-d", work / "classes", _SOURCE)
    subprocess.run([*compiler, *words], check=True, capture_output=True, timeout=within_s)


async def _run(
    program: Sequence[str | Path], sources: Mapping[int, Source], patterns: Sequence[str], limit_s: float
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
        *(*map(str, program), str(round(limit_s * 1000)), *patterns),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, complaint = await process.communicate("".join(lines).encode())
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
