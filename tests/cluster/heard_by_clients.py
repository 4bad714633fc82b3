"""What librdkafka's clients were told and wait for, kept while all goes well, to be read where one stands still."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LINES_MAX = 4_000
_LAST_LINES = 50
_OF_PARTITION = ("fetch_state", "leader", "next_offset", "app_offset", "committed_offset", "ls_offset", "hi_offset")


class Heard(logging.Handler):
    """The debug log and the latest statistics of one client, and the step that its owner is in."""

    def __init__(self, name: str, debug: str) -> None:
        super().__init__()
        self.name = name
        self.lines: deque[str] = deque(maxlen=_LINES_MAX)
        self._of_kinds: dict[str, str] = {}
        self._last, self._repeats = "", 0
        self._step = ("made", time.monotonic())
        self._longest_s: dict[str, float] = {}
        self._statistics: dict[str, Any] = {}
        self.hand_over: Callable[[], object] = lambda: None
        """Has the client hand over its lines, where its owner may be in a step too long to do so."""
        logger = logging.Logger(name)
        logger.addHandler(self)
        self.settings = {
            "log_level": 7,
            "debug": debug,
            "logger": logger,
            "statistics.interval.ms": 1_000,
            "stats_cb": self._note,
        }
        """What the client needs, so that it is heard."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, once if it is repeated. The time is that of the poll in which librdkafka hands it over."""
        text = record.getMessage()
        if text == self._last:
            self._repeats += 1
            self.lines.pop()
        else:
            self._last, self._repeats = text, 0
        text += f" (repeated {self._repeats} times)" if self._repeats else ""
        line = f"{time.strftime('%H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03} {text}"
        self.lines.append(line)
        self._of_kinds[text.partition(" ")[0]] = line

    def _note(self, statistics: str) -> None:
        self._statistics = {"at": time.strftime("%H:%M:%S"), **json.loads(statistics)}

    @contextmanager
    def during(self, step: str) -> Iterator[None]:
        """Note that the owner is in this step."""
        begun, before = time.monotonic(), self._step
        self._step = (step, begun)
        try:
            yield
        finally:
            self._step = before
            self._longest_s[step] = max(self._longest_s.get(step, 0.0), time.monotonic() - begun)

    def steps_longer_than(self, limit_s: float) -> list[str]:
        """Return the steps that took longer, with their longest time."""
        return [f"{self.name}: {step} {took_s:.1f} s" for step, took_s in self._longest_s.items() if took_s > limit_s]

    def report(self) -> list[str]:
        """Return what is known, for a person: the step, the statistics, the last line of each kind, the last lines."""
        self.hand_over()
        step, since = self._step
        self.acquire()
        try:
            kinds, last = sorted(self._of_kinds.values()), list(self.lines)[-_LAST_LINES:]
        finally:
            self.release()
        return [
            f"== {self.name}: in {step} for {time.monotonic() - since:.1f} s",
            *_of_statistics(self._statistics),
            "-- the last line of each kind:",
            *kinds,
            f"-- the last {_LAST_LINES} lines:",
            *last,
        ]


def _of_statistics(told: dict[str, Any]) -> list[str]:
    if not told:
        return ["no statistics yet"]
    lines = [f"statistics of {told['at']}"]
    lines += [f"{name}: {told[name]}" for name in ("cgrp", "eos") if name in told]
    for broker in told["brokers"].values():
        asked = {name: count for name, count in broker["req"].items() if count}
        lines.append(
            f"broker {broker['name']}: {broker['state']} for {broker['stateage'] / 1e6:.1f} s, "
            f"{broker['waitresp_cnt']} under way, {broker['outbuf_cnt']} to send, connects {broker['connects']}, "
            f"time-outs {broker['req_timeouts']}, asked {asked}"
        )
    for topic in told["topics"].values():
        for partition in topic["partitions"].values():
            if partition["partition"] >= 0:
                seen = {name: partition[name] for name in _OF_PARTITION}
                lines.append(f"{topic['topic']}-{partition['partition']}: {seen}")
    return lines
