"""Generates the Python source of an encoder for one version of a message.

One struct call packs adjacent fields of fixed size, the length that follows them and an empty section of tagged
fields. Nested structs are encoded in place, without calls. Only an encoder of large answers knows arrays that are
encoded already (``large_arrays``): it splices them in.
"""

from __future__ import annotations

import struct
from contextlib import AbstractContextManager
from typing import Any

from engine.common.errors import LocalProtocolError
from engine.kafka.protocol.declaration import NEW_LIST, Field, Message, Struct
from engine.kafka.protocol.large_arrays import EncodedList, Portion
from engine.kafka.protocol.source import Source
from engine.kafka.protocol.types import BYTES, RECORDS, STRING, UUID, Array, Blob, Scalar
from engine.kafka.protocol.wire import PACK_REPEATED, STRING_BYTES_MAX, Unfit, append_varint


def unencodable(cls: type[Message], version: int, value: Any, error: Exception) -> LocalProtocolError:
    """Return an exception that names the first field at fault, or ``error`` if there is none."""
    fault = find_fault(cls, version, value) or str(error)
    return LocalProtocolError(f"{cls.__name__} cannot be written in version {version}: {fault}")


def find_fault(cls: type[Struct], version: int, value: Any) -> str | None:
    """Return the first fault and its place, e.g. ``topics[3].name is None``; None if there is none."""
    if not isinstance(value, cls):
        return f"is a {type(value).__name__}, not a {cls.__name__}"
    for declared in cls.wire_fields:
        fault = _field_fault(declared, version, getattr(value, declared.name))
        if fault is not None:
            return f"{declared.name}{fault}" if fault[0] in ".[" else f"{declared.name} {fault}"
    return None


def _field_fault(declared: Field, version: int, value: Any) -> str | None:
    if not declared.is_in(version):
        default: Any = [] if declared.default is NEW_LIST else declared.default
        if declared.ignorable or value == default or (not value and default == []):
            return None
        return f"is {_short(value)}, but the version does not have it"
    if value is None:
        may_be = declared.is_nullable_in(version) or (declared.tag is not None and declared.default is None)
        return None if may_be else "is None"
    return _value_fault(declared.type, version, value)


def _value_fault(kind: Scalar | Blob | Array | type[Struct], version: int, value: Any) -> str | None:
    if isinstance(kind, Scalar):
        return _scalar_fault(kind, value)
    if isinstance(kind, Blob):
        return _blob_fault(kind, value)
    if isinstance(kind, type):
        fault = find_fault(kind, version, value)
        return None if fault is None else fault if fault.startswith("is a ") else f".{fault}"
    if not hasattr(value, "__len__"):
        return f"is {_short(value)}, not a list"
    for place, item in enumerate(value):
        fault = "is None" if item is None else _value_fault(kind.element, version, item)
        if fault is not None:
            return f"[{place}]{fault}" if fault[0] in ".[" else f"[{place}] {fault}"
    return None


def _scalar_fault(kind: Scalar, value: Any) -> str | None:
    try:
        struct.pack(">" + kind.code, value)
    except (struct.error, TypeError, OverflowError):
        return f"is {_short(value)}, not a {kind.name}"
    return f"is {_short(value)}, not 16 bytes" if kind is UUID and len(value) != 16 else None


def _blob_fault(kind: Blob, value: Any) -> str | None:
    if kind is STRING:
        if not isinstance(value, str):
            return f"is {_short(value)}, not a str"
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            return f"is not text: {error}"
        return f"takes {size} bytes, {STRING_BYTES_MAX} is the limit" if size > STRING_BYTES_MAX else None
    is_sized = kind is RECORDS and hasattr(value, "size_bytes")
    if kind in (BYTES, RECORDS) and not is_sized and not isinstance(value, bytes | bytearray | memoryview):
        return f"is {_short(value)}, not bytes"
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


_BYTES_LIKE = frozenset((bytes, bytearray, memoryview))
_PARTLY_ENCODED = frozenset((EncodedList, Portion))


def compile_encoder(cls: type[Message], version: int, *, is_large: bool) -> Any:
    """Return a function (out, value) -> None that appends the value to an ``Outgoing``.

    Args:
        is_large: the value's arrays may be encoded already.
    """
    return _EncoderWriter(cls, version, is_large=is_large).compile()


class _Run:
    """Pending fixed-size writes, to be done in one struct call."""

    def __init__(self) -> None:
        self.codes = ""
        self.values: list[str] = []

    def add(self, code: str, value: str) -> None:
        self.codes += code
        self.values.append(value)


class _EncoderWriter:
    def __init__(self, cls: type[Message], version: int, *, is_large: bool) -> None:
        self._cls = cls
        self._version = version
        self._is_large = is_large
        self._is_flexible = cls.is_flexible_in(version)
        self._source = Source()
        self._packers: dict[str, str] = {}
        self._out = "out"
        self._source.constants.update(
            Unfit=Unfit,
            append_varint=append_varint,
            bytes_like=_BYTES_LIKE,
            partly_encoded=_PARTLY_ENCODED,
            unencodable=unencodable,
            unfit=(Unfit, struct.error, AttributeError, TypeError, ValueError, OverflowError),
            message=cls,
        )

    def compile(self) -> Any:
        source = self._source
        with source.block("def encode(out, value):"):
            with source.block("try:"):
                self._struct(self._cls, "value")
                source.line("pass")
            with source.block("except unfit as error:"):
                source.line(f"raise unencodable(message, {self._version}, value, error) from error")
        return source.compile("encode", f"<encoder of {self._cls.__name__} v{self._version}>")

    def _block(self, head: str) -> AbstractContextManager[None]:
        return self._source.block(head)

    def _line(self, text: str) -> None:
        self._source.line(text)

    def _struct(self, cls: type[Struct], value: str) -> None:
        run, tagged = _Run(), []
        for declared in cls.wire_fields:
            if not declared.is_in(self._version):
                self._refuse(declared, f"{value}.{declared.name}")
            elif declared.tag is not None:
                tagged.append(declared)
            else:
                self._field(run, declared, f"{value}.{declared.name}")
        if self._is_flexible:
            self._tagged_section(run, sorted(tagged, key=lambda f: f.tag or 0), value)
        self._flush(run)

    def _refuse(self, declared: Field, value: str) -> None:
        if not declared.ignorable:
            self._line(f"if {self._differs(declared, value)}: raise Unfit('not in this version')")

    def _differs(self, declared: Field, value: str) -> str:
        """Return an expression for whether the value differs from the default."""
        if declared.default is NEW_LIST:
            return value
        if declared.default is None:
            return f"{value} is not None"
        return f"{value} != {declared.default!r}"

    def _field(self, run: _Run, declared: Field, value: str) -> None:
        kind = declared.type
        is_nullable = declared.is_nullable_in(self._version)
        if isinstance(kind, Scalar):
            if kind is UUID:
                self._line(f"if len({value}) != 16: raise Unfit('not 16 bytes')")
            run.add(kind.code, value)
        elif kind is RECORDS:
            self._records(run, value, is_nullable)
        elif isinstance(kind, Blob):
            self._blob(run, kind, value, is_nullable)
        elif isinstance(kind, Array):
            self._array(run, kind, value, is_nullable)
        else:
            self._flush(run)
            inner = self._source.fresh("inner")
            self._line(f"{inner} = {value}")
            if declared.has_marker_in(self._version):
                self._line(f"{self._out} += b'\\xff' if {inner} is None else b'\\x01'")
                with self._block(f"if {inner} is not None:"):
                    self._struct(kind, inner)
            else:
                self._struct(kind, inner)

    def _blob(self, run: _Run, kind: Blob, value: str, is_nullable: bool) -> None:
        data, size = self._source.fresh("data"), self._source.fresh("n")
        encode = ".encode()" if kind is STRING else ""
        self._line(f"{data} = {value}")
        if is_nullable:
            with self._block(f"if {data} is None:"):
                self._line(f"{data} = b''")
                self._line(f"{size} = {self._null_length}")
            with self._block("else:"):
                if encode:
                    self._line(f"{data} = {data}{encode}")
                self._line(f"{size} = {self._length_of(data)}")
        else:
            if encode:
                self._line(f"{data} = {data}{encode}")
            self._line(f"{size} = {self._length_of(data)}")
        self._length(run, size, is_wide=kind.is_wide)
        self._line(f"{self._out} += {data}")

    def _records(self, run: _Run, value: str, is_nullable: bool) -> None:
        data, size = self._source.fresh("data"), self._source.fresh("n")
        more = " + 1" if self._is_flexible else ""
        self._line(f"{data} = {value}")
        with self._block(f"if {data} is None:"):
            self._line(f"{size} = {self._null_length}" if is_nullable else "raise Unfit('None')")
        self._line(f"elif {data}.__class__ in bytes_like: {size} = len({data}){more}")
        self._line(f"else: {size} = {data}.size_bytes{more}")
        self._length(run, size, is_wide=True)
        with self._block(f"if {data} is not None:"):
            self._line(f"if {data}.__class__ in bytes_like: {self._out} += {data}")
            self._line(f"elif {size}{' > 1' if self._is_flexible else ''}: {self._out}.splice({data})")

    def _array(self, run: _Run, kind: Array, value: str, is_nullable: bool) -> None:
        source, element = self._source, kind.element
        items, size, item = source.fresh("items"), source.fresh("n"), source.fresh("item")
        self._line(f"{items} = {value}")
        if is_nullable:
            with self._block(f"if {items} is None:"):
                self._line(f"{items} = ()")
                self._line(f"{size} = {self._null_length}")
            self._line(f"else: {size} = {self._length_of(items)}")
        else:
            self._line(f"{size} = {self._length_of(items)}")
        self._length(run, size, is_wide=True)
        if isinstance(element, Scalar):
            repeated = source.constant(PACK_REPEATED[element.code], "repeated")
            self._line(f"if {items}: {self._out} += {repeated}[len({items})](*{items})")
            return
        if self._is_large and self._out == "out":
            self._line(f"if {items}.__class__ in partly_encoded: {items} = {items}.spliced_into(out)")
        with self._block(f"for {item} in {items}:"):
            if isinstance(element, Blob):
                inner = _Run()
                self._blob(inner, element, item, is_nullable=False)
            else:
                self._struct(element, item)
            self._line("pass")

    @property
    def _null_length(self) -> str:
        return "0" if self._is_flexible else "-1"

    def _length_of(self, data: str) -> str:
        return f"len({data}) + 1" if self._is_flexible else f"len({data})"

    def _length(self, run: _Run, size: str, *, is_wide: bool) -> None:
        """Write the pending fields, then the length or count, which the variable ``size`` holds in its final form."""
        if not self._is_flexible:
            run.add("i" if is_wide else "h", size)
            self._flush(run)
            return
        waiting = self._call(run)
        with self._block(f"if {size} < 128:"):
            if waiting:
                run.add("B", size)
                self._line(f"{self._out} += {self._call(run)}")
            else:
                self._line(f"{self._out}.append({size})")
        with self._block("else:"):
            if not is_wide:
                self._line(f"if {size} > {STRING_BYTES_MAX + 1}: raise Unfit('too long')")
            if waiting:
                self._line(f"{self._out} += {waiting}")
            self._line(f"append_varint({self._out}, {size})")
        run.codes, run.values = "", []

    def _call(self, run: _Run) -> str:
        """Return the expression that packs the pending fields; empty if there are none."""
        if not run.codes:
            return ""
        if run.codes not in self._packers:
            self._packers[run.codes] = self._source.constant(struct.Struct(">" + run.codes).pack, "pack")
        return f"{self._packers[run.codes]}({', '.join(run.values)})"

    def _flush(self, run: _Run) -> None:
        if run.codes == "x":
            self._line(f"{self._out}.append(0)")
        elif run.codes:
            self._line(f"{self._out} += {self._call(run)}")
        run.codes, run.values = "", []

    def _tagged_section(self, run: _Run, tagged: list[Field], value: str) -> None:
        if not tagged:
            run.codes += "x"
            return
        is_any_set = " or ".join([f"({self._differs(f, f'{value}.{f.name}')})" for f in tagged])
        waiting = self._call(run)
        with self._block(f"if {is_any_set}:"):
            if waiting:
                self._line(f"{self._out} += {waiting}")
            self._some_tagged(tagged, value)
        with self._block("else:"):
            run.codes += "x"
            self._flush(run)

    def _some_tagged(self, tagged: list[Field], value: str) -> None:
        count, body = self._source.fresh("count"), self._source.fresh("body")
        fields, outer = self._source.fresh("fields"), self._out
        self._line(f"{count} = 0")
        self._line(f"{fields} = bytearray()")
        for declared in tagged:
            place = f"{value}.{declared.name}"
            differs = self._differs(declared, place)
            if isinstance(declared.type, type):
                empty = self._source.constant(declared.type(), "empty")
                differs = f"{differs} and {place} != {empty}"
            with self._block(f"if {differs}:"):
                self._line(f"{body} = bytearray()")
                self._out = body
                run = _Run()
                self._field(run, declared, place)
                self._flush(run)
                self._out = outer
                self._line(f"{count} += 1")
                self._line(f"append_varint({fields}, {declared.tag})")
                self._line(f"append_varint({fields}, len({body}))")
                self._line(f"{fields} += {body}")
        self._line(f"append_varint({outer}, {count})")
        self._line(f"{outer} += {fields}")
