"""Kafka's log files (E19): pattern, separation, hourly rolling."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.runtime.log_files import OF_LINES, SEPARATE_FILES, HourlyFileHandler, KafkaFormatter, log_to_files


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Put the loggers back as pytest had them."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    names = [name for file in SEPARATE_FILES for name in file.loggers]
    for logger in (root, *map(logging.getLogger, names)):
        for handler in list(logger.handlers):
            if handler not in handlers:
                logger.removeHandler(handler)
                handler.close()
        logger.propagate = True
    root.setLevel(level)


def test_lines_have_kafkas_form_and_each_file_its_own(tmp_path: Path) -> None:
    log_to_files(tmp_path)
    logging.getLogger("kafka.server.KafkaServer").warning("[KafkaServer id=%d] started", 1)
    logging.getLogger("kafka.controller.KafkaController").debug("[Controller id=1] Resigned")
    logging.getLogger("state.change.logger").info("[Broker id=1] Handling")
    logging.getLogger("kafka.server.KafkaServer").debug("not written")
    server = (tmp_path / "server.log").read_text().splitlines()
    assert len(server) == 1
    assert re.fullmatch(
        r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] WARN \[KafkaServer id=1\] started \(kafka\.server\.KafkaServer\)",
        server[0],
    )
    assert (
        "DEBUG [Controller id=1] Resigned (kafka.controller.KafkaController)"
        in (tmp_path / "controller.log").read_text()
    )
    assert "INFO [Broker id=1] Handling (state.change.logger)" in (tmp_path / "state-change.log").read_text()


def test_a_peers_words_stay_on_one_line() -> None:
    name = "größer\n[2026-01-01 00:00:00,000] INFO forged\r\x1b[2J\u2028"
    record = logging.LogRecord("kafka.x", logging.INFO, "", 1, "no topic %s", (name,), None)
    line = KafkaFormatter().format(record)
    assert line.endswith(r"INFO no topic größer\n[2026-01-01 00:00:00,000] INFO forged\r\x1b[2J\u2028 (kafka.x)")


def test_a_message_of_several_lines_keeps_them() -> None:
    """As Kafka's cleaner says what it did; scripts read these lines."""
    record = logging.makeLogRecord({"name": "kafka.log.LogCleaner", "msg": "\n\tcleaned\n", **OF_LINES})
    assert KafkaFormatter().format(record).endswith("\n\tcleaned\n (kafka.log.LogCleaner)")


def test_a_stack_trace_follows_its_line() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        import sys

        record = logging.LogRecord("kafka.x", logging.ERROR, "", 1, "failed", None, sys.exc_info())
    first, *rest = KafkaFormatter().format(record).splitlines()
    assert first.endswith("ERROR failed (kafka.x)")
    assert rest[-1] == "ValueError: why"


def test_a_terminal_gets_the_fault_without_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_files(None)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("kafka.x").exception("failed")
    said = capsys.readouterr().err
    assert said.splitlines()[1:] == ["    ValueError: why"]
    assert "Traceback" not in said


def test_the_hour_that_is_over_goes_into_a_file_of_its_own(tmp_path: Path) -> None:
    handler = HourlyFileHandler(tmp_path / "server.log")
    handler.setFormatter(logging.Formatter("%(message)s"))
    first_hour = 1_700_000_000.0
    for created, text in ((first_hour, "one"), (first_hour + 1, "two"), (first_hour + 3600, "three")):
        record = logging.LogRecord("x", logging.INFO, "", 1, text, None, None)
        record.created = created
        if text == "one":
            handler._hour = "2000-01-01-00"
        handler.emit(record)
    handler.close()
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names[0] == "server.log"
    assert len(names) == 3
    assert (tmp_path / "server.log").read_text() == "three\n"
    assert any((tmp_path / name).read_text() == "one\ntwo\n" for name in names[1:])
