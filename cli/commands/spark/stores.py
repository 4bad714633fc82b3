"""File systems that only Spark knows, for commands that read from them. Spark starts if the user names one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from cli.framework.invocation import Invocation

if TYPE_CHECKING:
    from engine.admin.lag.stores import OtherStore, Store


@contextmanager
def other_stores(invocation: Invocation) -> Iterator[OtherStore]:
    """Yield a function that opens such file systems. Spark, if it was started, ends with the context."""
    with ExitStack() as stack:
        lock = threading.Lock()
        opened: list[Store] = []

        def store_of(uri: str) -> tuple[Store, str]:
            from cli.commands.spark.shared import SessionOptions, open_spark
            from engine.spark.hadoop_store import HadoopStore, service_of

            with lock:
                if not opened:
                    invocation.waited_for = "Spark, which is starting"
                    invocation.talk.detail(f"{uri}: read through Spark's file systems")
                    stack.enter_context(open_spark(invocation, SessionOptions(master="local[1]"), name="klamm files"))
                    opened.append(HadoopStore())
            # Hadoop tries for many minutes: the time of the command is up long before.
            invocation.waited_for = service_of(uri)
            return opened[0], uri

        yield store_of
        invocation.waited_for = None
