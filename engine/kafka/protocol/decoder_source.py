"""Generates the Python source of a decoder for one version of a message.

One struct call reads adjacent fields of fixed size and the length that follows them. Nested structs are decoded in
place, without calls. The remaining bytes limit every count, so that no number in a message can make the decoder use
more memory than a multiple of the message's size. Python's smallest objects take 70 bytes, and a message may have one
for each two bytes. So a decoder for large messages leaves long arrays as bytes (``large_arrays``). It counts what their
elements would take as objects, which handlers may make of them, and refuses what would take too much.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from engine.common.errors import RemoteProtocolError
from engine.kafka.protocol.declaration import NEW_LIST, Field, Message, Struct
from engine.kafka.protocol.large_arrays import LAZY_MIN, Frame, numbers
from engine.kafka.protocol.source import Source
from engine.kafka.protocol.types import RECORDS, STRING, Array, Blob, Scalar
from engine.kafka.protocol.wire import (
    STRING_BYTES_MAX,
    Malformed,
    RepeatedUnpack,
    read_varint,
    rest_of_varint,
    skip_tagged,
)

MEMORY_BYTES_MIN = 256 * 1024 * 1024
"""So much memory a message may always take: a million elements."""

MEMORY_PER_BYTE_MAX = 4
"""The value of a larger message may take this many times the message's own size."""

MEMORY_PER_BYTE_OF_SMALLEST = 100
"""Any message's value may take this many times the message's own size, made of the smallest elements that there are."""

_LIST_BYTES, _VIEW_BYTES, _TEXT_BYTES, _NUMBER_BYTES, _PLACE_BYTES, _COLLECTED_BYTES = 56, 200, 50, 32, 8, 16
"""What Python's objects take besides their content; a place is one in a list."""


def compile_decoder(cls: type[Message], version: int, *, is_bounded: bool) -> Any:
    """Return a function (buffer, offset) -> (value, next offset); ``is_bounded``: it limits the value's memory.

    As in Java, what is no UTF-8 in a text becomes U+FFFD.
    """
    return _DecoderWriter(cls, version, is_bounded=is_bounded, takes_any_text=is_bounded).compile()


@cache
def _decoder_of_any_text(cls: type[Message], version: int) -> Any:
    return _DecoderWriter(cls, version, is_bounded=False, takes_any_text=True).compile()


def memory_bytes_max(size_bytes: int) -> int:
    """Return the most memory that a decoder for large messages takes for one of this size."""
    return min(MEMORY_PER_BYTE_OF_SMALLEST * size_bytes, max(MEMORY_BYTES_MIN, MEMORY_PER_BYTE_MAX * size_bytes))


def _struct_bytes(cls: type[Struct]) -> int:
    """Return the memory of a value without what its fields hold."""
    lists = sum(isinstance(field.type, Array) for field in cls.wire_fields)
    return object.__new__(cls).__sizeof__() + _COLLECTED_BYTES + _PLACE_BYTES + lists * _LIST_BYTES


def min_size_bytes(cls: type[Struct], version: int, *, is_flexible: bool) -> int:
    """Return the minimum size of a value in bytes."""
    total = 1 if is_flexible else 0
    for declared in cls.wire_fields:
        if declared.tag is None and declared.is_in(version):
            has_marker = declared.has_marker_in(version)
            total += 1 if has_marker else _min_field_bytes(declared.type, version, is_flexible)
    return total


def _min_field_bytes(kind: Scalar | Blob | Array | type[Struct], version: int, is_flexible: bool) -> int:
    if isinstance(kind, Scalar):
        return kind.size_bytes
    if isinstance(kind, Blob):
        return 1 if is_flexible else 4 if kind.is_wide else 2
    if isinstance(kind, Array):
        return 1 if is_flexible else 4
    return min_size_bytes(kind, version, is_flexible=is_flexible)


def _label(cls: type[Struct], declared: Field) -> str:
    return f"{cls.__name__}.{declared.name}"


def holds_records(cls: type[Struct], version: int) -> bool:
    """Return whether the version has a RECORDS field at any depth."""
    for declared in cls.wire_fields:
        if declared.is_in(version):
            kind = declared.type.element if isinstance(declared.type, Array) else declared.type
            if kind is RECORDS or (isinstance(kind, type) and holds_records(kind, version)):
                return True
    return False


class _Run:
    """Pending fixed-size reads, to be done in one struct call."""

    def __init__(self) -> None:
        self.codes = ""
        self.targets: list[str] = []


class _DecoderWriter:
    def __init__(self, cls: type[Message], version: int, *, is_bounded: bool, takes_any_text: bool) -> None:
        self._cls = cls
        self._version = version
        self._is_bounded = is_bounded
        self._takes_any_text = takes_any_text
        """Otherwise a message that is no UTF-8 is decoded once more: the others then take less time."""
        self._is_flexible = cls.is_flexible_in(version)
        self._is_zero_copy = holds_records(cls, version)
        self._source = Source()
        self._unpackers: dict[str, str] = {}
        self._readers: dict[str, str] = {}
        self._source.constants.update(
            new=object.__new__,
            Malformed=Malformed,
            RemoteProtocolError=RemoteProtocolError,
            broken=(Malformed, struct.error, IndexError),
            decoder_of_any_text=self._decoder_of_any_text,
            read_varint=read_varint,
            rest_of_varint=rest_of_varint,
            skip_tagged=skip_tagged,
            Frame=Frame,
            numbers=numbers,
        )

    def compile(self) -> Any:
        source = self._source
        name = f"{self._cls.__name__} v{self._version}"
        if self._is_bounded:
            self._readers_of(self._cls)
        with source.block("def decode(buffer, pos):"):
            source.line("start = pos")
            with source.block("try:"):
                if self._is_zero_copy:
                    source.line("if buffer.__class__ is not memoryview: buffer = memoryview(buffer)")
                else:
                    # Slicing bytes is cheaper than slicing a memoryview, by more than this copy costs.
                    source.line("if buffer.__class__ is not bytes: buffer = bytes(buffer)")
                source.line("limit = len(buffer)")
                if self._is_bounded:
                    source.line(f"frame = Frame(max({MEMORY_BYTES_MIN}, {MEMORY_PER_BYTE_MAX} * limit))")
                self._struct(self._cls, "value")
                if self._is_bounded:
                    # Whoever looks at an element later may look as often as he likes.
                    source.line("frame.room = float('inf')")
                source.line("return value, pos")
            if not self._takes_any_text:
                with source.block("except UnicodeDecodeError:"):
                    source.line("return decoder_of_any_text()(buffer, start)")
            with source.block("except broken as error:"):
                if self._is_bounded:
                    source.line("if frame.failed_at is not None: pos = frame.failed_at")
                source.line(f'raise RemoteProtocolError(f"{name}: {{error}}, near byte {{pos}}") from error')
        return source.compile("decode", f"<decoder of {name}>")

    def _decoder_of_any_text(self) -> Any:
        return _decoder_of_any_text(self._cls, self._version)

    def _readers_of(self, cls: type[Struct]) -> None:
        """Write a function for the elements of each array in a struct, at whatever depth."""
        for declared in cls.wire_fields:
            kind = declared.type
            inner = kind.element if isinstance(kind, Array) else kind
            if not declared.is_in(self._version) or isinstance(inner, Scalar):
                continue
            if isinstance(inner, type):
                self._readers_of(inner)
            if isinstance(kind, Array):
                self._reader(inner, _label(cls, declared))

    def _reader(self, element: Blob | type[Struct], label: str) -> None:
        source = self._source
        name = self._readers[label] = source.fresh("read")
        with source.block(f"def {name}(buffer, pos, frame):"):
            source.line("limit = len(buffer)")
            with source.block("try:"):
                self._element(element, "item", label)
                source.line("return item, pos")
            with source.block("except broken:"):
                source.line("if frame.failed_at is None: frame.failed_at = pos")
                source.line("raise")

    def _struct(self, cls: type[Struct], target: str) -> None:
        source, run = self._source, _Run()
        source.line(f"{target} = new({source.constant(cls, cls.__name__)})")
        tagged = []
        for declared in cls.wire_fields:
            place = f"{target}.{declared.name}"
            if not declared.is_in(self._version) or declared.tag is not None:
                source.line(f"{place} = {self._default(declared)}")
                if declared.is_in(self._version):
                    tagged.append(declared)
            else:
                self._field(run, declared, place, cls)
        if self._is_flexible:
            self._tagged_section(run, tagged, target, cls)
        self._flush(run)

    def _default(self, declared: Field) -> str:
        if declared.default is NEW_LIST:
            return "[]"
        return repr(declared.default)

    def _field(self, run: _Run, declared: Field, place: str, cls: type[Struct]) -> None:
        kind = declared.type
        if isinstance(kind, Scalar):
            run.codes += kind.code
            run.targets.append(place)
            return
        label = _label(cls, declared)
        if isinstance(kind, type):
            inner, marker = self._source.fresh("inner"), self._source.fresh("n")
            if declared.has_marker_in(self._version):
                run.codes += "b"
                run.targets.append(marker)
            self._flush(run)
            if declared.has_marker_in(self._version):
                self._source.line(f"{inner} = None")
                with self._source.block(f"if {marker} >= 0:"):
                    self._struct(kind, inner)
            else:
                self._struct(kind, inner)
            self._source.line(f"{place} = {inner}")
            return
        size = self._length(run, is_wide=isinstance(kind, Array) or kind.is_wide)
        if not declared.is_nullable_in(self._version):
            self._sized(kind, size, place, label)
            return
        # Kafka takes any negative length for null.
        with self._source.block(f"if {size} < 0:"):
            self._source.line(f"{place} = None")
        with self._source.block("else:"):
            self._sized(kind, size, place, label)

    def _length(self, run: _Run, *, is_wide: bool) -> str:
        """Read a length or count; return the variable that holds it (negative for null)."""
        size = self._source.fresh("n")
        if self._is_flexible:
            self._first_byte(run, size)
            self._source.line(f"{size} -= 1")
        else:
            run.codes += "i" if is_wide else "h"
            run.targets.append(size)
            self._flush(run)
        return size

    def _first_byte(self, run: _Run, target: str) -> None:
        run.codes += "B"
        run.targets.append(target)
        self._flush(run)
        self._source.line(f"if {target} > 127: {target}, pos = rest_of_varint(buffer, pos, {target})")

    def _flush(self, run: _Run) -> None:
        if not run.codes:
            return
        if run.codes == "B":
            self._source.line(f"{run.targets[0]} = buffer[pos]")
            self._source.line("pos += 1")
        else:
            if run.codes not in self._unpackers:
                unpack = struct.Struct(">" + run.codes).unpack_from
                self._unpackers[run.codes] = self._source.constant(unpack, "unpack")
            targets = ", ".join(run.targets) + ("," if len(run.targets) == 1 else "")
            self._source.line(f"{targets} = {self._unpackers[run.codes]}(buffer, pos)")
            self._source.line(f"pos += {struct.calcsize('>' + run.codes)}")
        run.codes, run.targets = "", []

    def _sized(self, kind: Blob | Array, size: str, place: str, label: str) -> None:
        if isinstance(kind, Blob):
            self._blob(kind, size, place, label)
        else:
            self._array(kind, size, place, label)

    def _blob(self, kind: Blob, size: str, place: str, label: str) -> None:
        source = self._source
        too_long = f" or {size} > {STRING_BYTES_MAX}" if kind is STRING and self._is_flexible else ""
        source.line(f"end = pos + {size}")
        with source.block(f"if {size} < 0 or end > limit{too_long}:"):
            source.line(f'raise Malformed(f"{label} has the length {{{size}}}")')
        part = "buffer[pos:end]"
        if kind is STRING:
            how = "'utf-8', 'replace'" if self._takes_any_text else "'utf-8'" if self._is_zero_copy else ""
            part = f"str({part}, {how})" if self._is_zero_copy else f"{part}.decode({how})"
        elif kind is not RECORDS and self._is_zero_copy:
            part = f"bytes({part})"
        source.line(f"{place} = {part}")
        source.line("pos = end")
        if self._is_bounded:
            source.line(f"frame.room -= {_VIEW_BYTES if kind is RECORDS else f'{size} + {_TEXT_BYTES + _PLACE_BYTES}'}")

    def _array(self, kind: Array, size: str, place: str, label: str) -> None:
        if isinstance(kind.element, Scalar):
            self._scalars(kind.element, size, place, label)
            return
        source, element = self._source, kind.element
        least = _min_field_bytes(element, self._version, self._is_flexible)
        if least == 0:
            raise TypeError(f"{label}: elements of no bytes cannot be counted safely")
        with source.block(f"if {size} < 0 or {size} * {least} > limit - pos:"):
            source.line(f'raise Malformed(f"{label} has the count {{{size}}}")')
        if self._is_bounded:
            # Before the first is made: to free millions of them again would hold the event loop.
            own = _TEXT_BYTES + _PLACE_BYTES if isinstance(element, Blob) else _struct_bytes(element)
            source.line(f"frame.room -= {size} * {own}")
            self._check_room(label)
        items, item = source.fresh("items"), source.fresh("item")
        if self._is_bounded:
            read = self._readers[label]
            with source.block(f"if {size} > {LAZY_MIN}:"):
                source.line(f"{place}, pos = frame.lazy({read}, {size}, buffer, pos)")
            with source.block("else:"):
                source.line(f"{place} = {items} = []")
                with source.block(f"for _ in range({size}):"):
                    source.line(f"{item}, pos = {read}(buffer, pos, frame)")
                    source.line(f"{items}.append({item})")
            return
        source.line(f"{place} = {items} = []")
        with source.block(f"for _ in range({size}):"):
            self._element(element, item, label)
            source.line(f"{items}.append({item})")

    def _element(self, element: Blob | type[Struct], item: str, label: str) -> None:
        """Read an element of an array; its own size has been counted with that of all others."""
        if isinstance(element, Blob):
            run = _Run()
            self._sized(element, self._length(run, is_wide=element.is_wide), item, label)
            if self._is_bounded:
                self._source.line(f"frame.room += {_TEXT_BYTES + _PLACE_BYTES}")
        else:
            self._struct(element, item)
        self._check_room(label)

    def _scalars(self, element: Scalar, size: str, place: str, label: str) -> None:
        source = self._source
        unpack = source.constant(RepeatedUnpack(element.code, label), "unpack")
        if self._is_bounded:
            source.line(f"frame.room -= {size} * {_NUMBER_BYTES + _PLACE_BYTES}")
            self._check_room(label)
            with source.block(f"if {size} > {LAZY_MIN} and pos + {size} * {element.size_bytes} <= limit:"):
                source.line(f"{place} = numbers({element.code!r}, buffer, pos, pos + {size} * {element.size_bytes})")
                source.line(f"pos += {size} * {element.size_bytes}")
        with source.block(f"{'elif' if self._is_bounded else 'if'} {size}:"):
            source.line(f"{place} = [*{unpack}[{size}](buffer, pos)]")
            source.line(f"pos += {size} * {element.size_bytes}")
        source.line(f"else: {place} = []")

    def _check_room(self, label: str) -> None:
        if self._is_bounded:
            with self._source.block("if frame.room < 0:"):
                self._source.line(f'raise Malformed("{label}: its elements take more memory than a request may")')

    def _tagged_section(self, run: _Run, tagged: list[Field], target: str, cls: type[Struct]) -> None:
        source, count = self._source, self._source.fresh("n")
        run.codes += "B"
        run.targets.append(count)
        self._flush(run)
        if not tagged:
            source.line(f"if {count}: pos = skip_tagged(buffer, pos, {count})")
            return
        tag, stop = source.fresh("tag"), source.fresh("stop")
        with source.block(f"if {count}:"):
            source.line(f"if {count} > 127: {count}, pos = rest_of_varint(buffer, pos, {count})")
            with source.block(f"for _ in range({count}):"):
                source.line(f"{tag}, pos = read_varint(buffer, pos)")
                source.line(f"{stop}, pos = read_varint(buffer, pos)")
                source.line(f"{stop} += pos")
                for place, declared in enumerate(tagged):
                    with source.block(f"{'elif' if place else 'if'} {tag} == {declared.tag}:"):
                        inner = _Run()
                        self._field(inner, declared, f"{target}.{declared.name}", cls)
                        self._flush(inner)
                with source.block("else:"):
                    source.line(f"pos = {stop}")
                with source.block(f"if pos != {stop} or pos > limit:"):
                    source.line(f'raise Malformed(f"{cls.__name__}: tagged field {{{tag}}} has a wrong size")')
