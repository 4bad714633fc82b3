"""The operating system's side of a broker process: arguments, limits, signals, exit codes."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from engine.broker.handlers.registry import all_handlers
from engine.broker.server.kafka_server import KafkaServer
from engine.common.errors import ConfigError, CoordinationError, KlammError, OperationError, StorageError
from engine.kafka.client.config_providers import resolve_references
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.properties import parse_override, parse_properties
from engine.runtime.input_files import name_of, read_input
from engine.runtime.log_files import log_to_files

logger = logging.getLogger("kafka.server.KafkaServer")

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_UNREACHABLE = 0, 1, 2, 3

_OPEN_FILES_MACOS = 10_240
"""macOS allows a process no more open files, yet says that there is no limit."""

SWITCH_INTERVAL_S = 0.0005
"""How long a busy Python thread may keep the event loop waiting; Python's own default is ten times that."""

GC_THRESHOLDS = (10_000, 5, 100)
"""The broker makes no cycles per request. A collection of young objects takes 3 ms at most, of middle-aged ones 15. A
full one takes 40 ms with 2,000 replicas, and comes when some millions of objects have been kept since the last.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker from the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.broker.server", description="Run one broker in the foreground."
    )
    parser.add_argument("file", type=Path, help="a server.properties file as in Kafka")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="overrides the file")
    parser.add_argument("--log-folder", type=Path, help="write Kafka's log files here; default: LOG_DIR, else stderr")
    parser.add_argument("--hold", action="store_true", help="load the code, then wait until stdin ends")
    options = parser.parse_args(arguments)
    if options.hold:
        all_handlers()
        sys.stdin.buffer.read()
    try:
        overrides = dict(parse_override(text) for text in options.override)
    except ConfigError as error:
        return report(error, EXIT_USAGE)
    folder = options.log_folder or (Path(os.environ["LOG_DIR"]) if os.environ.get("LOG_DIR") else None)
    return run(options.file, overrides, log_folder=folder)


def run(file: Path, overrides: Mapping[str, str], *, log_folder: Path | None = None) -> int:
    """Run a broker until TERM, INT or HUP; return the exit code. Errors are one line on stderr."""
    try:
        texts = {**parse_properties(read_input(file, errors="strict")), **overrides}
        config = BrokerConfig(resolve_references(texts, os.environ, declared=texts))
    except OSError as error:
        return report(OperationError(f"cannot read {file}: {error.strerror}"), EXIT_USAGE)
    except UnicodeDecodeError:
        hint = "save it as UTF-8; Java's \\uXXXX escapes are understood too"
        return report(OperationError(f"{name_of(file)} is not UTF-8", hint=hint), EXIT_USAGE)
    except KlammError as error:
        return report(error, EXIT_USAGE)
    log_to_files(log_folder)
    for warning in config.warnings:
        logger.warning("%s", warning)
    prepare_process()
    # It would block the event loop.
    all_handlers()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(serve(config))
        except (ConfigError, OperationError, StorageError) as error:
            return report(error, EXIT_USAGE)
        except CoordinationError as error:
            return report(error, EXIT_UNREACHABLE)
        except KlammError as error:
            return report(error, EXIT_FAILED)


async def serve(config: BrokerConfig) -> int:
    """Start a broker, say so on stderr, and serve until a signal comes or the broker gives up."""
    loop = asyncio.get_running_loop()
    server = KafkaServer(config)
    for number in _end_signals():
        loop.add_signal_handler(number, server.request_stop)
    try:
        if await _start_unless_stopped(server):
            # Freeze the objects of the start: there is hardly any garbage among them, and a collection takes 40 ms.
            gc.freeze()
            listeners = ",".join(str(endpoint) for endpoint in server.advertised_listeners)
            print(f"started broker {server.broker_id} listeners={listeners}", file=sys.stderr, flush=True)
            await server.wait_for_stop_request()
    finally:
        await server.stop()
    if server.failure is not None:
        return report(OperationError(f"the broker ended by itself: {server.failure}"), EXIT_FAILED)
    return EXIT_OK


def _end_signals() -> list[signal.Signals]:
    """Return the signals that stop a broker cleanly. Under ``nohup`` it survives its terminal, as Java does."""
    outlives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([] if outlives_terminal else [signal.SIGHUP])]


async def _start_unless_stopped(server: KafkaServer) -> bool:
    """Start the broker; a stop request during the start ends it where it is. Return whether the broker serves."""
    starting = asyncio.create_task(server.start(), name="start")
    stop_requested = asyncio.create_task(server.wait_for_stop_request(), name="stop request")
    await asyncio.wait((starting, stop_requested), return_when=asyncio.FIRST_COMPLETED)
    stop_requested.cancel()
    if not starting.done():
        logger.info("Received a stop request before the start was complete")
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    starting.result()
    return True


def prepare_process() -> None:
    """Raise the limit of open files as far as allowed, and tune Python for one busy loop."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = _OPEN_FILES_MACOS if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)


def report(error: Exception, code: int) -> int:
    """Print on stderr what went wrong and, if known, what to do; return ``code``."""
    print(f"error: {error}", file=sys.stderr)
    hint = getattr(error, "hint", None)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return code
