"""Every message in every version, byte for byte against independent codecs, in both directions.

KLAMM_FUZZ_ROUNDS (default 1) multiplies the values.
"""

from __future__ import annotations

import random
from pathlib import Path

from protocol_oracles import oracles_for
from protocol_values import all_messages, any_of, in_each_version, many_of, one_of
from soak import rounds

from engine.kafka.protocol.codec import Outgoing, decoder, encoder
from engine.kafka.protocol.declaration import Message

VALUES = 4 * rounds("KLAMM_FUZZ_ROUNDS", 1)
"""For each version. Hypothesis would take five times as long to draw so few."""


@in_each_version
def test_any_values(cls: type[Message], version: int) -> None:
    for number in range(VALUES):
        check(cls, version, any_of(cls, version, random.Random(f"{cls.__name__} {version} {number}")))


@in_each_version
def test_empty_full_and_many(cls: type[Message], version: int) -> None:
    check(cls, version, one_of(cls, version))
    check(cls, version, many_of(cls, version))


def check(cls: type[Message], version: int, value: Message) -> None:
    out = Outgoing()
    encoder(cls, version)(out, value)
    ours = bytes(out)
    oracles = oracles_for(cls, version)
    assert oracles, "no oracle knows this version"
    for oracle in oracles:
        theirs = oracle.build(value)
        assert ours == oracle.encode(theirs), oracle.name
        assert oracle.decode(ours) == theirs, oracle.name
    assert decoder(cls, version)(ours, 0) == (value, len(ours))
    in_the_middle = memoryview(bytearray(b"\xaa" * 5 + ours))
    assert decoder(cls, version)(in_the_middle, 5) == (value, len(ours) + 5)


@in_each_version
def test_unknown_tagged_fields_are_ignored(cls: type[Message], version: int) -> None:
    if not cls.is_flexible_in(version):
        return
    out = Outgoing()
    encoder(cls, version)(out, cls())
    assert out[-1] == 0
    later = bytes(out[:-1]) + b"\x02" + b"\xe7\x07\x03abc" + b"\xe8\x07\x00"
    assert decoder(cls, version)(later, 0) == (cls(), len(later))


def test_the_readme_counts_what_two_others_check() -> None:
    counts = [len(oracles_for(cls, version)) for cls, version in all_messages()]
    claim = f"with two of them for {sum(count > 1 for count in counts)} of the {len(counts)} message versions"
    assert claim in (Path(__file__).parents[3] / "README.md").read_text()
