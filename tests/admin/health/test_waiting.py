"""Health checked once, or until it is good enough."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from event_loop import in_event_loop

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.health import reading
from engine.admin.health.report import Check, HealthFacts, HealthReport, HealthStatus, report_of
from engine.common.snapshot import ClusterSnapshot, SnapshotSource

OK, WARNING, CRITICAL = HealthStatus
SICK = {
    OK: report_of([]),
    WARNING: report_of([(Check.ZOOKEEPER_SLOW, ["slow"])]),
    CRITICAL: report_of([(Check.NO_CONTROLLER, ["none"])]),
}


@pytest.mark.parametrize(
    ("status", "limit", "is_bad"),
    [
        (OK, WARNING, False),
        (WARNING, WARNING, True),
        (CRITICAL, WARNING, True),
        (WARNING, CRITICAL, False),
        (CRITICAL, CRITICAL, True),
        (OK, OK, False),
    ],
)
def test_how_bad_is_too_bad(status: HealthStatus, limit: HealthStatus, is_bad: bool) -> None:
    assert SICK[status].is_as_bad_as(limit) is is_bad


def look(
    monkeypatch: pytest.MonkeyPatch,
    *seen: HealthStatus,
    until_better_than: HealthStatus | None = None,
    timeout_s: float = 30.0,
) -> tuple[HealthReport, list[str]]:
    """Return what is reported for a cluster with these looks, one after the other. The last look repeats."""
    left: Iterator[HealthStatus] = iter(seen[:-1])

    async def facts(_: Cluster) -> HealthFacts:
        return HealthFacts(ClusterSnapshot((), (), SnapshotSource.WIRE, 0))

    monkeypatch.setattr(reading, "PAUSE_S", 0.01)
    monkeypatch.setattr(reading, "read_health_facts", facts)
    monkeypatch.setattr(reading, "assess", lambda *_: SICK[next(left, seen[-1])])
    said: list[str] = []

    async def looking() -> HealthReport:
        target = ClusterTarget("c", Origin.OPTIONS, bootstrap=(("127.0.0.1", 1),))
        async with asyncio.timeout(20), Cluster(target, timeout_s=timeout_s) as cluster:
            return await reading.read_health(
                cluster,
                until_better_than=until_better_than,
                on_wait=lambda report, waited_s: said.append(f"{report.status} {waited_s >= 0}"),
            )

    return asyncio.run(looking()), said


def test_one_look_is_enough_for_who_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    report, said = look(monkeypatch, CRITICAL, OK)
    assert (report.status, said) == (CRITICAL, [])


def test_it_is_looked_at_again_until_it_is_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    report, said = look(monkeypatch, CRITICAL, CRITICAL, WARNING, OK, until_better_than=CRITICAL)
    assert (report.status, said) == (WARNING, ["critical True"] * 2)
    report, said = look(monkeypatch, CRITICAL, CRITICAL, WARNING, OK, until_better_than=WARNING)
    assert (report.status, len(said)) == (OK, 3)


def test_when_the_time_is_over_the_last_look_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = look(monkeypatch, CRITICAL, until_better_than=CRITICAL, timeout_s=0.05)
    assert report.status is CRITICAL


@in_event_loop
async def test_a_look_that_takes_too_long_is_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silence(_: Cluster) -> HealthFacts:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(reading, "PAUSE_S", 0.01)
    monkeypatch.setattr(reading, "read_health_facts", silence)
    target = ClusterTarget("c", Origin.OPTIONS, bootstrap=(("127.0.0.1", 1),))
    async with asyncio.timeout(20), Cluster(target, timeout_s=0.05) as cluster:
        with pytest.raises(TimeoutError):
            await reading.read_health(cluster, until_better_than=CRITICAL)
