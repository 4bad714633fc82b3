"""The values that a performance test sends: random letters, payloads of a file, or rising numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Parameter, Phrase
from engine.kafka.config.input_files import name_of, read_input_bytes

_LETTERS = bytes(65 + byte % 26 for byte in range(256))
_SEED = 0


def random_letters(size_bytes: int) -> Iterator[bytes]:
    """Yield values of A to Z without end, the same ones in every run, as kafka-producer-perf-test does."""
    source = random.Random(_SEED)
    while True:
        yield source.randbytes(size_bytes).translate(_LETTERS)


def drawn_from(payloads: list[bytes]) -> Iterator[bytes]:
    """Yield payloads drawn at random without end, the same ones in every run."""
    source = random.Random(_SEED)
    while True:
        yield source.choice(payloads)


def rising_numbers() -> Iterator[bytes]:
    """Yield 0, 1, 2 … as text."""
    return (b"%d" % number for number in count())


def read_payloads(path: Path, delimiter: str) -> list[bytes]:
    """Read the payloads of a file; an end of line after the last one does not add an empty payload.

    Raises:
        NotFound: there is no such file.
        BadRequest: it is empty, or the delimiter is.
    """
    separator = delimiter.replace("\\n", "\n").replace("\\t", "\t").encode()
    if not separator:
        hint = Phrase("leave ", Parameter.PAYLOAD_DELIMITER, " out for one payload per line")
        raise BadRequest("the delimiter of payloads is empty", hint=hint)
    try:
        data = read_input_bytes(path)
    except FileNotFoundError as error:
        raise NotFound("no such file", where=str(path)) from error
    if not data:
        raise BadRequest("the file of payloads is empty", where=name_of(path))
    return data.removesuffix(separator).split(separator)
