"""State-change logs of many brokers, slightly out of order, and the result of the local merge."""

from __future__ import annotations

import gzip
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from engine.admin.state_changes.log_files import find_logs, look_at_logs
from engine.admin.state_changes.merge import MergePlan, MergeWish, plan_merge
from engine.admin.state_changes.merged_rows import text_chunks, text_tags

BEGIN = datetime(2026, 11, 21, 6)


def plan_of(*paths: Path, **wish: Any) -> MergePlan:
    return plan_merge(look_at_logs(find_logs(paths)), MergeWish(**wish))


def locally(plan: MergePlan) -> bytes:
    return b"".join(text_chunks(plan.merge(text_tags(plan), in_bursts=True)))


def entry(moment: datetime, broker: int, text: str) -> str:
    return f"[{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}] INFO [Broker id={broker}] {text} (logger)\n"


def write_logs(
    folder: Path, chance: random.Random, *, brokers: int, entries: int, disorder: int, is_gzip: bool = False
) -> None:
    """Write each broker's log in two files; ``disorder`` is how many places an entry may be from its own."""
    for broker in range(1, brokers + 1):
        moment, texts = BEGIN + timedelta(milliseconds=chance.randint(0, 5000)), []
        for number in range(entries):
            moment += timedelta(milliseconds=chance.choice([0, 0, 0, 1, 7, 900]))
            text = entry(moment, broker, f"Leader orders-{number} starts" + "x" * chance.randint(0, 60))
            if chance.random() < 0.02:
                text += "java.io.IOException: No space left\n\tat kafka.Log\n[not a time]\n"
            texts.append(text)
        for at in range(len(texts) - 1):
            if disorder and chance.random() < 0.1:
                other = min(len(texts) - 1, at + chance.randint(1, disorder))
                texts[at], texts[other] = texts[other], texts[at]
        middle = chance.randint(0, entries)
        path = folder / f"broker-{broker}" / "state-change.log"
        path.parent.mkdir(parents=True)
        rolled = "".join(texts[:middle]).encode()
        live = "".join(texts[middle:]).encode()
        if chance.random() < 0.5:
            live = b"\tat a.line.of.the.last.file\n" + live
        if chance.random() < 0.5:
            live = live.removesuffix(b"\n")
        path.with_name("state-change.log.2026-11-21-06").write_bytes(gzip.compress(rolled) if is_gzip else rolled)
        path.write_bytes(live)
