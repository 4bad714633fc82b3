"""A sentence or log line about many things names the first and counts the rest. Naming all blocked the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.broker.controller.logs import comma, scala, scala_map
from engine.broker.replication import fetcher_manager
from engine.common.listing import LISTED_MAX, first_few


class Written:
    """A thing that counts how many of its kind were formatted."""

    total = 0

    def __str__(self) -> str:
        Written.total += 1
        return "x"


LINES: dict[str, Callable[[list[Any]], str]] = {
    "comma": comma,
    "a generator": lambda values: comma(value for value in values),
    "scala": lambda values: scala("Set", values),
    "scala_map": lambda values: scala_map("Map", dict(enumerate(values))),
    "the fetchers' set": fetcher_manager.scala_set,
    "the fetchers' map": lambda values: fetcher_manager.scala_map(dict(enumerate(values))),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", LINES)
def test_of_very_many_the_first_are_written(name: str) -> None:
    Written.total = 0
    line = LINES[name]([Written() for _ in range(LISTED_MAX + 5)])
    assert Written.total == LISTED_MAX
    assert "and 5 more" in line
    assert "more" not in LINES[name]([Written() for _ in range(LISTED_MAX)])


def test_a_sentence_names_the_first_few() -> None:
    assert first_few([]) == ""
    assert first_few(["a"]) == "a"
    assert first_few([1, 2, 3], 3) == "1, 2, 3"
    assert first_few((str(number) for number in range(7)), 3) == "0, 1, 2 and 4 more"
