"""What all tests with failing brokers need."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def sockets_that_clients_leave_behind() -> Iterator[None]:
    """Collect the sockets of connects to dead brokers here; kafka-python drops them without closing them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
