"""What every test may use: one ZooKeeper and one cluster of each kind per process; and how Hypothesis runs."""

from __future__ import annotations

import gc
import random
import signal
import sys
import uuid
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from live_cluster import live_cluster, topic_name
from operated_cluster import by_wire, by_znodes, klamm_by, three_brokers

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

# A fixture of a session starts once for each conftest.py that imports it.
__all__ = ["by_wire", "by_znodes", "klamm_by", "live_cluster", "three_brokers", "topic_name"]

pytest_plugins = ["folder_times", "nursery", "required_tools", "shared_out", "zookeeper_archive"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would every program that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A run proves the same as the one before it, however busy the machine is; "explore" looks for examples of its own.
settings.register_profile(
    "klamm", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("klamm"), derandomize=False)
settings.load_profile("klamm")


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """One embedded ZooKeeper for all tests of this process, on a loopback address of its own."""
    with EmbeddedZooKeeper(host=own_loopback_address(), fsync=False) as server:
        yield server


@pytest.fixture
def zk_chroot(zookeeper: EmbeddedZooKeeper) -> str:
    """A connect string ``host:port/chroot`` that nobody else uses; the chroot does not exist yet."""
    return f"{zookeeper.connect_string}/test-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector: nearly all that is made lives on, so it searches in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Take what was collected out of the garbage collector's sight, since it lives as long as the process does.

    From now on it comes once in 10,000 new objects, not in 700: it took 6 % of the CPU of tests that compute.

    Clients get a generator of their own. Their threads may outlive a test and draw from the global one. Hypothesis
    takes that for a draw of the strategy that runs then, and calls it an error.
    """
    drawn = random.Random()
    for name, module in list(sys.modules.items()):
        if name.startswith(("kafka.", "kazoo.")) and getattr(module, "random", None) is random:
            module.random = drawn  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)
