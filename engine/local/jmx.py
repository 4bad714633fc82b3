"""Reads MBeans by JMX. Java alone speaks its protocol, so a small Java program reads them from all brokers at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from engine.admin.brokers.metrics import Beans, bean_of, numbers
from engine.admin.brokers.metrics_sources import Source
from engine.common.errors import OperationError
from engine.common.model import address_text
from engine.local.java import find_java

_PROGRAM: Final = Path(__file__).with_name("JmxReader.java")


async def read_jmx(
    sources: Mapping[int, Source], patterns: Sequence[str], limit_s: float, within_s: float
) -> dict[int, Beans | str]:
    """Read MBeans of brokers. The reason stands for a broker that does not tell.

    Args:
        limit_s: how long one broker may take.
        within_s: how long all may take, with the start of Java.
    """
    try:
        java = await asyncio.to_thread(find_java, user="reading JMX")
        if not java.has_module("jdk.compiler"):
            return dict.fromkeys(sources, f"{java.program} has no compiler, which reading JMX needs: set JAVA_HOME")
        output = await _run(java.program, sources, patterns, limit_s, within_s)
    except (OperationError, OSError) as error:
        return dict.fromkeys(sources, str(error))
    return await asyncio.to_thread(_by_broker, sources, output)


async def _run(
    java: Path, sources: Mapping[int, Source], patterns: Sequence[str], limit_s: float, within_s: float
) -> bytes:
    lines = [
        f"{broker}\t{address_text(one.host, one.port)}\t{one.user or ''}\t{one.password or ''}\n"
        for broker, one in sources.items()
    ]
    process = await asyncio.create_subprocess_exec(
        *(str(java), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *(str(_PROGRAM), str(round(limit_s * 1000)), *patterns),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(within_s):
            told, complaint = await process.communicate("".join(lines).encode())
    except TimeoutError:
        raise OperationError(f"Java did not end within {within_s:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = complaint.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise OperationError(f"Java ended with {process.returncode}: {''.join(last)}")
    return told


def _by_broker(sources: Mapping[int, Source], told: bytes) -> dict[int, Beans | str]:
    found: dict[int, Beans | str] = {broker: {} for broker in sources}
    for line in told.splitlines():
        row = json.loads(line)
        beans = found[row["broker"]]
        if "error" in row:
            found[row["broker"]] = row["error"]
        elif isinstance(beans, dict) and (bean := bean_of(row["mbean"])) is not None:
            beans[bean] = numbers(row["attributes"])
    return {broker: beans or "it has none of Kafka's MBeans" for broker, beans in found.items()}
