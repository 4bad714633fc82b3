"""``.kafka_cleanshutdown`` in a log dir: its presence means that the last stop was clean. A start removes it.

Kafka before 3.7 wrote it empty; later versions write the broker epoch as JSON (-1 in ZooKeeper mode).
"""

from __future__ import annotations

import json

from engine.common.model import UNKNOWN_BROKER_EPOCH

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_VERSION = 0


def encode_clean_shutdown() -> str:
    """Return the file's text as Kafka 3.9 with ZooKeeper writes it."""
    return json.dumps({"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": UNKNOWN_BROKER_EPOCH}, separators=(",", ":"))


def decode_clean_shutdown(text: str) -> int | None:
    """Return the broker epoch in the file, or None if it has none that is readable (an older Kafka's file)."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    broker_epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return broker_epoch if isinstance(broker_epoch, int) else None
