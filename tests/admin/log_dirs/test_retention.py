"""What a lower retention deletes, and when, is said before it is set."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from engine.admin.log_dirs.describing import DirReplica, LogDir
from engine.admin.log_dirs.retention import text_of

CONFIGS = {"cleanup.policy": "delete", "log.retention.check.interval.ms": "300000", "file.delete.delay.ms": "60000"}
LATER = "deleted, at a check every 5m; the space comes back 1m after that (file.delete.delay.ms)"


def _dirs(*sizes: int, is_future: bool = False) -> list[LogDir]:
    replicas = tuple(DirReplica("t", number, size, 0, is_future) for number, size in enumerate(sizes))
    return [
        LogDir(1, "/a", None, sum(sizes), len(sizes), None, None, replicas),
        LogDir(2, None, "silent", 0, 0, None, None),
    ]


@pytest.mark.parametrize(
    ("log_dirs", "bytes_max", "configs", "expected"),
    [
        (_dirs(50_000_000, 10_000_000), 20_000_000, {}, f"up to 30.0 MB of 60.0 MB on all brokers are {LATER}"),
        (_dirs(10, 20), 20, {}, "nothing is deleted now: no replica has more than 20 B"),
        (_dirs(50_000_000, is_future=True), 20, {}, f"what exceeds it is {LATER}"),
        ([], 20, {}, f"what exceeds it is {LATER}"),
        ([], None, {}, f"what is older is {LATER}"),
        ([], None, {"file.delete.delay.ms": "0"}, f"what is older is {LATER.replace('1m', '0s')}"),
        (_dirs(50), 20, {"cleanup.policy": "compact"}, ""),
        (_dirs(50), 20, {"cleanup.policy": "compact,delete"}, f"up to 30 B of 50 B on all brokers are {LATER}"),
    ],
)
def test_what_exceeds_a_new_retention_is_counted_by_replica(
    log_dirs: list[LogDir], bytes_max: int | None, configs: Mapping[str, str], expected: str
) -> None:
    assert "; ".join(text_of({**CONFIGS, **configs}, log_dirs, bytes_max)) == expected


@pytest.mark.parametrize(
    ("away", "bytes_max", "expected"),
    [
        ({2}, 20, f"up to 30 B of 50 B on the brokers that answer are {LATER}; broker 2 does not answer: it deletes "
         "nothing before it is back"),
        ({3, 2}, None, f"what is older is {LATER}; brokers 2, 3 do not answer: they delete nothing before they are "
         "back"),
        ({2}, 50, "nothing is deleted now: no replica on a broker that answers has more than 50 B"),
    ],
)  # fmt: skip
def test_a_broker_that_is_away_is_not_counted_on(away: set[int], bytes_max: int | None, expected: str) -> None:
    assert "; ".join(text_of(CONFIGS, _dirs(50), bytes_max, away=away)) == expected
