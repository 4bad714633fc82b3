"""The checker of topics' lives finds each kind of fault that it is meant to find."""

from __future__ import annotations

import pytest
from topic_life import Life, Pair, Seen, check_records

A, B, C, D = ((b"k%d" % (n % 2), b"1/%d" % n) for n in range(4))
OF_ANOTHER_LIFE = (b"k0", b"2/0")


def life(*, is_keyed: bool = False) -> Life:
    made = Life(1, is_keyed, bytes(16))
    made.note(0, [A, B, C])
    made.maybe.add(D)
    return made


@pytest.mark.parametrize(
    ("seen", "is_keyed"),
    [
        (Seen(0, 3, {0: A, 1: B, 2: C}), False),
        (Seen(1, 3, {1: B, 2: C}), False),
        (Seen(0, 4, {0: A, 1: B, 2: C, 3: D}), False),
        (Seen(0, 3, {1: B, 2: C}), True),
        (Seen(0, 4, {2: C, 3: D}), True),
    ],
    ids=["all", "deleted up to 1", "an unanswered one is there", "compacted", "compacted by an unanswered one"],
)
def test_what_may_be(seen: Seen, *, is_keyed: bool) -> None:
    check_records("t-0", seen, life(is_keyed=is_keyed))


@pytest.mark.parametrize(
    ("records", "is_keyed", "fault"),
    [
        ({0: A, 2: C}, False, r"has lost \[1\]"),
        ({}, False, r"has lost \[0, 1, 2\]"),
        ({0: A, 1: B, 2: OF_ANOTHER_LIFE}, False, "which should be"),
        ({0: A, 1: B, 2: C, 3: OF_ANOTHER_LIFE}, False, "which should be"),
        ({0: A, 1: D, 2: C}, False, "which should be"),
        ({0: A, 1: B, 2: C, 3: D, 4: D}, False, "more than once"),
        ({0: A, 2: C}, True, r"has lost \[1\]"),
        ({0: A, 1: B}, True, r"has lost \[2\]"),
    ],
)
def test_what_must_not_be(records: dict[int, Pair], fault: str, *, is_keyed: bool) -> None:
    with pytest.raises(AssertionError, match=fault):
        check_records("t-0", Seen(0, 5, records), life(is_keyed=is_keyed))


def test_after_a_power_failure_what_was_not_flushed_may_be_gone_or_back() -> None:
    check_records("t-0", Seen(0, 1, {0: A}), life(), least=1)
    with pytest.raises(AssertionError, match=r"has lost \[0\]"):
        check_records("t-0", Seen(0, 3, {1: B, 2: C}), life(), least=1)
