"""What Kafka reads from a certificate: its subject as Java writes it, and its alternative names. DER in, texts out."""

from __future__ import annotations

from collections.abc import Iterator

from engine.common.errors import RemoteProtocolError

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Types that RFC 2253 names; Java writes the others as numbers, and their values in hexadecimal."""
_TEXTS = (12, 19, 20, 22, 27, 30)
"""ASN.1 tags of texts. Java reads all of them as UTF-8, even those that are UTF-16."""
_ESCAPED = ',=+<>#;"\\'
_BLANKS = " \r"
"""These are escaped too where a value begins or ends."""
_ALTERNATIVE_NAMES = bytes.fromhex("0603551d11")
_EXTENSIONS, _EXPLICIT_VERSION = 0xA3, 0xA0


def subject_of(certificate: bytes) -> str:
    """Return a certificate's subject as Java's ``X500Principal.getName`` does (RFC 2253), the last part first.

    Raises:
        RemoteProtocolError: the bytes are no certificate.
    """
    fields = _fields(certificate)
    # Serial number, algorithm, issuer, validity, subject.
    parts = [_name_part(part) for _, part, _ in _elements(fields[4][1])]
    return ",".join(reversed(parts))


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Return a certificate's alternative names, each as it is encoded."""
    for tag, content, _ in _fields(certificate):
        if tag != _EXTENSIONS:
            continue
        ((_, extensions, _),) = _elements(content)
        for _, extension, _ in _elements(extensions):
            if extension.startswith(_ALTERNATIVE_NAMES):
                value = list(_elements(extension))[-1][1]
                ((_, names, _),) = _elements(value)
                return frozenset(whole for _, _, whole in _elements(names))
    return frozenset()


def _fields(certificate: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the fields of the part that is signed, without its version."""
    try:
        ((_, signed, _),) = _elements(certificate)
        fields = list(_elements(next(iter(_elements(signed)))[1]))
        return fields[1:] if fields[0][0] == _EXPLICIT_VERSION else fields
    except (ValueError, IndexError, StopIteration):
        raise RemoteProtocolError("a certificate is malformed") from None


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield tag, content and whole encoding of each element."""
    at = 0
    while at < len(data):
        start, tag, length = at, data[at], data[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            length, at = int.from_bytes(data[at : at + count], "big"), at + count
        if at + length > len(data):
            raise ValueError("cut short")
        yield tag, data[at : at + length], data[start : at + length]
        at += length


def _name_part(part: bytes) -> str:
    """Return one part of a name; one with several values joins them by ``+``."""
    return "+".join(_value(pair) for _, pair, _ in _elements(part))


def _value(pair: bytes) -> str:
    (_, number, _), (tag, content, whole) = _elements(pair)
    numbers = _dotted(number)
    keyword = _KEYWORDS.get(numbers)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or numbers}=#{whole.hex()}"
    return f"{keyword}={_escaped(content)}"


def _escaped(content: bytes) -> str:
    text = content.decode("utf-8", "replace")
    escaped = "".join("\\00" if char == "\0" else f"\\{char}" if char in _ESCAPED else char for char in text)
    inner = escaped.lstrip(_BLANKS)
    leading = escaped[: len(escaped) - len(inner)]
    trailing = inner[len(inner.rstrip(_BLANKS)) :]
    return "".join((*(f"\\{char}" for char in leading), inner.rstrip(_BLANKS), *(f"\\{char}" for char in trailing)))


def _dotted(number: bytes) -> str:
    """Return an object identifier as numbers with dots."""
    values, value = [], 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            values.append(value)
            value = 0
    first = min(values[0] // 40, 2)
    return ".".join(map(str, (first, values[0] - 40 * first, *values[1:])))
