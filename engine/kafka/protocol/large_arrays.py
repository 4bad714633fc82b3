"""Arrays of large messages: their elements are bytes, and objects only while they are in use.

As objects, a million elements would take many times their bytes. If you change an element that such an array has
yielded, you change a copy.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from itertools import islice
from typing import Any, overload

LAZY_MIN = 500
"""Arrays with more elements than this stay bytes. At most this many are made at once when an element is looked at."""

_STEP = 64
"""Elements between two positions that an array remembers."""


ReadElement = Callable[[Any, int, "Frame"], tuple[Any, int]]
"""(buffer, position, frame) -> (element, position after it)."""


class Frame:
    """What decoding one large message has found so far."""

    __slots__ = ("_walked", "failed_at", "room")

    def __init__(self, room: float) -> None:
        self.room = room
        """How much memory the message's value may still take."""
        self.failed_at: int | None = None
        """Where an element is damaged."""
        self._walked: dict[int, tuple[array[int], int]] = {}

    def lazy(self, read: ReadElement, count: int, buffer: Any, position: int) -> tuple[LazyArray, int]:
        """Return the array whose first element is at ``position``, and the position after its last one.

        The first time it reads all elements, to find out whether they are sound. An array inside elements that are
        looked at again is not read again.

        Raises:
            What ``read`` raises.
        """
        walked = self._walked.get(position)
        if walked is None:
            starts, end = array("i"), position
            for number in range(count):
                if not number % _STEP:
                    starts.append(end)
                end = read(buffer, end, self)[1]
            walked = self._walked[position] = starts, end
        return LazyArray(read, count, buffer, walked[0], self), walked[1]


class LazyArray(Sequence[Any]):
    """An array in the bytes of a message, which it keeps alive. Each look at an element makes it again."""

    __slots__ = ("_buffer", "_count", "_frame", "_read", "_starts")

    def __init__(self, read: ReadElement, count: int, buffer: Any, starts: Sequence[int], frame: Frame) -> None:
        self._read, self._count, self._buffer, self._starts, self._frame = read, count, buffer, starts, frame

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return self.starting_at(0)

    @overload
    def __getitem__(self, wanted: int) -> Any: ...

    @overload
    def __getitem__(self, wanted: slice) -> list[Any]: ...

    def __getitem__(self, wanted: int | slice) -> Any:
        places = range(self._count)[wanted]
        if isinstance(places, int):
            return next(self.starting_at(places))
        if places.step != 1:
            return [self[place] for place in places]
        return list(islice(self.starting_at(places.start), len(places)))

    def __repr__(self) -> str:
        return repr(list(self))

    def mapped(self, change: Callable[[Any], Any]) -> LazyArray:
        """Return an array of what ``change`` makes of each element whenever somebody looks at it."""

        def read(buffer: Any, position: int, frame: Frame) -> tuple[Any, int]:
            element, position = self._read(buffer, position, frame)
            return change(element), position

        return LazyArray(read, self._count, self._buffer, self._starts, self._frame)

    def starting_at(self, first: int) -> Iterator[Any]:
        """Yield the elements from this one on."""
        if first >= self._count:
            return
        read, buffer, frame = self._read, self._buffer, self._frame
        known = first - first % _STEP
        position = self._starts[known // _STEP]
        for _ in range(known, first):
            position = read(buffer, position, frame)[1]
        for _ in range(first, self._count):
            element, position = read(buffer, position, frame)
            yield element


class PickedArray(Sequence[Any]):
    """Some elements of a lazy array, in its order."""

    __slots__ = ("_array", "_places")

    def __init__(self, whole: LazyArray) -> None:
        self._array, self._places = whole, array("i")

    def add(self, place: int) -> None:
        """Add the element at this place of the array, behind those that are there."""
        self._places.append(place)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Any]:
        return self._from(0)

    @overload
    def __getitem__(self, wanted: int) -> Any: ...

    @overload
    def __getitem__(self, wanted: slice) -> list[Any]: ...

    def __getitem__(self, wanted: int | slice) -> Any:
        places = range(len(self._places))[wanted]
        if isinstance(places, int):
            return self._array[self._places[places]]
        if places.step != 1:
            return [self[place] for place in places]
        return list(islice(self._from(places.start), len(places)))

    def _from(self, first: int) -> Iterator[Any]:
        at, elements = -_STEP, iter(())
        for place in self._places[first:]:
            if not at <= place < at + _STEP:
                at, elements = place, self._array.starting_at(place)
            yield next(islice(elements, place - at, None))
            at = place + 1


class EncodedPiece:
    """Some elements of an answer's array, encoded."""

    __slots__ = ("_end", "_start", "message")

    def __init__(self, message: bytes, start: int, end: int) -> None:
        self.message, self._start, self._end = message, start, end
        """``message``: a whole answer with these elements alone."""

    @property
    def size_bytes(self) -> int:
        return self._end - self._start

    @property
    def data(self) -> memoryview:
        """The elements' own bytes."""
        return memoryview(self.message)[self._start : self._end]


class Portion:
    """Stands for an array while an encoder for large answers runs, and notes where its elements are then."""

    __slots__ = ("_elements", "_end", "_start")

    def __init__(self, elements: list[Any]) -> None:
        self._elements, self._start, self._end = elements, 0, 0

    def __len__(self) -> int:
        return len(self._elements)

    def spliced_into(self, out: bytearray) -> Iterator[Any]:
        """Yield the elements, which the encoder appends to ``out``."""
        self._start = len(out)
        yield from self._elements
        self._end = len(out)

    def piece_of(self, out: bytearray) -> EncodedPiece:
        return EncodedPiece(bytes(out), self._start, self._end)


class EncodedList(Iterable[Any]):
    """An array of an answer that grows element by element, and encodes what it has taken, piece by piece."""

    __slots__ = ("_arrays", "_count", "_count_errors", "_decode", "_encode", "_pieces", "_rest", "_weight", "errors")

    def __init__(
        self,
        encode: Callable[[list[Any]], EncodedPiece],
        decode: Callable[[bytes], list[Any]],
        arrays: Sequence[str] = (),
        count_errors: Callable[[MutableMapping[int, int], Any], None] | None = None,
    ) -> None:
        """``arrays``: the fields of an element that are arrays themselves. A piece has few of their elements, too."""
        self._encode, self._decode, self._arrays, self._count_errors = encode, decode, arrays, count_errors
        self.errors: defaultdict[int, int] = defaultdict(int)
        """How often each error code is in the elements that are encoded."""
        self._weight = 0
        self._pieces: list[EncodedPiece | list[Any]] = []
        self._rest: list[Any] = []
        self._count = 0

    def append(self, element: Any) -> None:
        """Add an element that will not change any more. One that is large itself stays as it is."""
        weight = 1
        for name in self._arrays:
            inner = getattr(element, name) or ()
            # A piece cannot splice in what another list has encoded.
            weight += LAZY_MIN if inner.__class__ is EncodedList else len(inner)
        if weight > LAZY_MIN:
            self.keep(element)
            return
        self._rest.append(element)
        self._count += 1
        self._weight += weight
        if self._weight >= LAZY_MIN:
            self._finish_piece()

    def _finish_piece(self) -> None:
        if self._rest:
            self._pieces.append(self._encode(self._rest))
            if self._count_errors is not None:
                for element in self._rest:
                    self._count_errors(self.errors, element)
            self._rest, self._weight = [], 0

    def keep(self, element: Any) -> None:
        """Add an element that may still change, so it stays an object."""
        self._finish_piece()
        self._pieces.append([element])
        self._count += 1

    def extend(self, elements: Iterable[Any]) -> Iterator[None]:
        """Add elements; a step is some of them."""
        if isinstance(elements, EncodedList):
            self._finish_piece()
            self._pieces += elements._pieces
            for code, count in elements.errors.items():
                self.errors[code] += count
            self._rest, self._weight = list(elements._rest), elements._weight
            self._count += len(elements)
            return
        for element in elements:
            self.append(element)
            yield

    def empty(self) -> EncodedList:
        """Return another list for the same array."""
        return EncodedList(self._encode, self._decode, self._arrays, self._count_errors)

    @property
    def settled(self) -> EncodedList | list[Any]:
        """The list itself, or a usual one if it is short."""
        return self if self._pieces else self._rest

    @property
    def objects(self) -> Iterator[Any]:
        """The elements that are not encoded yet."""
        for piece in self._pieces:
            yield from piece if isinstance(piece, list) else ()
        yield from self._rest

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        for piece in self._pieces:
            yield from piece if isinstance(piece, list) else self._decode(piece.message)
        yield from self._rest

    def spliced_into(self, out: Any) -> Iterator[Any]:
        """Splice in the pieces; yield each other element in its turn, which the encoder appends to ``out``."""
        for piece in self._pieces:
            if isinstance(piece, list):
                yield from piece
            else:
                out.splice(piece)
        yield from self._rest


def numbers(code: str, buffer: Any, position: int, end: int) -> Sequence[Any]:
    """Return the big-endian numbers of one type in a part of a buffer, in as much memory as their bytes take."""
    values: array[Any] = array(code)
    values.frombytes(memoryview(buffer)[position:end])
    if sys.byteorder == "little":
        values.byteswap()
    return values
