"""The group ``klamm spark``, the options of every command that starts Spark, and the start itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation

if TYPE_CHECKING:
    from engine.spark.session import SparkSession

group = CommandGroup("spark", "Kafka and Spark: watch your jobs, and run klamm's own operations on a Spark cluster.")

SPARK_PANEL = "Spark"

_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The options of every command that starts Spark."""

    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://…  [default: local[*]]",
            rich_help_panel=SPARK_PANEL,
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.", rich_help_panel=SPARK_PANEL
        ),
    ] = None
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--packages",
            metavar="GROUP:ARTIFACT:VERSION,…",
            help="Jars that Spark fetches from Maven.",
            rich_help_panel=SPARK_PANEL,
        ),
    ] = None


def path_of(place: str) -> Path:
    """Return the path that the user means, even if written as a URI. Spark must run if only it knows the place."""
    scheme, colon, rest = place.partition(":/")
    if not colon or len(scheme) < 2 or not scheme.isalnum() or Path(f"{scheme}:").exists():
        return Path(place)
    if scheme.lower() == "file":
        return Path("/", rest.lstrip("/"))
    from engine.spark.store_path import StorePath

    return StorePath.of(place)


@contextmanager
def open_spark(invocation: Invocation, wanted: SessionOptions, *, name: str) -> Iterator[SparkSession]:
    """Yield a Spark session for one command. Spark's own output goes into a log; --verbose says where."""
    import os
    from contextlib import ExitStack

    from engine.local.java import find_java
    from engine.spark.session import SparkOptions, check_pyspark, parse_conf, spark_session

    options = SparkOptions(
        wanted.master,
        tuple(parse_conf(text) for text in wanted.conf or ()),
        tuple(package.strip() for text in wanted.packages or () for package in text.split(",") if package.strip()),
    )
    check_pyspark()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        with spark_session(name, options) as spark:
            yield spark
        return
    java = find_java(user="Spark")
    invocation.talk.detail(f"spark: {options.master or 'local'}, Java {java.major} of {java.found_in}")
    started = spark_session(
        name,
        options,
        java_home=java.program.resolve().parents[1],
        has_vector_module=java.has_module("jdk.incubator.vector"),
        keeps_log=invocation.talk.verbosity > 1,
        on_log=lambda path: invocation.talk.detail(f"spark: its log is {path}"),
    )
    with ExitStack() as stack:
        with waits_shown(invocation) as wait:
            wait("spark", "starting")
            spark = stack.enter_context(started)
        yield spark


@contextmanager
def waits_shown(invocation: Invocation) -> Iterator[Callable[[str, str], None]]:
    """Say on stderr what is waited for, and how long. The function names it: whose work, and what; "" is nothing."""
    import threading

    from cli.framework.progress import Activity

    lock, ended, doing = threading.Lock(), threading.Event(), ""
    activity = Activity(invocation.talk, "")

    def wait(whose: str, what: str) -> None:
        nonlocal activity, doing
        with lock:
            activity.end()
            activity, doing = Activity(invocation.talk, whose), what

    def show() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            with lock:
                if doing:
                    activity.update(doing)

    watcher = threading.Thread(target=show, name="spark-waits", daemon=True)
    watcher.start()
    try:
        yield wait
    finally:
        ended.set()
        watcher.join()
        activity.end()


@contextmanager
def tasks_shown(invocation: Invocation, spark: SparkSession) -> Iterator[None]:
    """Show on stderr the progress of the jobs that run inside."""
    from cli.framework.progress import Progress
    from engine.spark.session import tasks_watched

    progress = Progress(invocation.talk, "done", "tasks")
    try:
        with tasks_watched(spark, lambda done, total: progress.update(done, total)):
            yield
    finally:
        progress.end()
