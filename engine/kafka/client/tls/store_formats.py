"""Key stores and trust stores in the three forms that Kafka takes: JKS, PKCS12 and PEM. Bytes in, PEM texts out.

As in Java, the content decides between JKS and PKCS12, whatever ``ssl.….type`` says. JKS is read here: its one cipher
is Java's own, and the libraries that know it are no longer maintained. PKCS12 needs ``cryptography``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
import struct
from base64 import b64encode
from dataclasses import dataclass, field

from engine.common.errors import ConfigError

_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_SUN_KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")
"""The only cipher of keys in a JKS file, as an encoded OID: 1.3.6.1.4.1.42.2.17.1.1."""
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]++)-----((?:[^-]++|-(?!----))*+)-----END \1-----")

EXTRA = "pip install 'klamm[security]'"


@dataclass(frozen=True, slots=True)
class Store:
    """What a store holds, as PEM: certificates to trust, and a private key with its chain (or neither)."""

    trusted: str = ""
    key: str = field(default="", repr=False)
    chain: str = ""
    is_key_encrypted: bool = False


def read_store(content: bytes, store_type: str, password: str | None, key_password: str | None, where: str) -> Store:
    """Read a store of any type.

    Raises:
        ConfigError: it is of another type, the password is wrong, or a library is missing.
    """
    if store_type.upper() == "PEM":
        return read_pem(content.decode("utf-8", "replace"), where)
    if content.startswith(_JKS):
        return _read_jks(content, password, key_password, where)
    if content.startswith(_JCEKS):
        hint = "convert it: keytool -importkeystore -deststoretype PKCS12"
        raise ConfigError(f"{where} is a JCEKS store, which klamm does not read; {hint}")
    if content.startswith(b"\x30"):
        return _read_pkcs12(content, password, where)
    if b"-----BEGIN" in content:
        raise ConfigError(f"{where} is PEM, but the type of the store is {store_type}: set it to PEM")
    raise ConfigError(f"{where} is neither JKS nor PKCS12 nor PEM")


def read_pem(text: str, where: str) -> Store:
    """Read certificates and at most one private key; the key may be encrypted. Line breaks may be missing.

    Raises:
        ConfigError: there is no PEM block.
    """
    blocks = [(match[1], _wrapped(match[1], match[2].strip())) for match in _PEM_BLOCK.finditer(text)]
    if not blocks:
        raise ConfigError(f"{where} holds no PEM block (-----BEGIN …-----)")
    certificates = "".join(block for label, block in blocks if label.endswith("CERTIFICATE"))
    keys = [(label, block) for label, block in blocks if label.endswith("PRIVATE KEY")]
    is_encrypted = bool(keys) and (keys[0][0].startswith("ENCRYPTED") or "ENCRYPTED" in keys[0][1][:200])
    return Store(certificates, keys[0][1] if keys else "", certificates if keys else "", is_encrypted)


def _wrapped(label: str, body: str) -> str:
    """Return one block with line breaks, which a value in a properties file may have lost."""
    if ":" not in body:
        packed = "".join(body.split())
        body = "\n".join(packed[i : i + 64] for i in range(0, len(packed), 64))
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"


class _Jks:
    """Reads the fields of a JKS file in turn."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 4

    def number(self) -> int:
        (value,) = struct.unpack(">I", self.take(4))
        return int(value)

    def take(self, count: int) -> bytes:
        taken = self._content[self._at : self._at + count]
        if len(taken) < count:
            raise ValueError("cut short")
        self._at += count
        return taken

    def text(self) -> bytes:
        (length,) = struct.unpack(">H", self.take(2))
        return self.take(length)

    def certificate(self, version: int) -> str:
        if version == 2:
            self.text()
        return ssl.DER_cert_to_PEM_cert(self.take(self.number()))


def _read_jks(content: bytes, password: str | None, key_password: str | None, where: str) -> Store:
    if password is not None:
        expected = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + content[:-20]).digest()
        if not hmac.compare_digest(expected, content[-20:]):
            raise ConfigError(f"the password of {where} is wrong, or the file is damaged")
    trusted, key, chain = "", "", ""
    try:
        jks = _Jks(content)
        version = jks.number()
        for _ in range(jks.number()):
            tag, _alias, _time = jks.number(), jks.text(), jks.take(8)
            if tag == 2:
                trusted += jks.certificate(version)
                continue
            sealed = jks.take(jks.number())
            own = "".join(jks.certificate(version) for _ in range(jks.number()))
            if not key and (key_password or password) is not None:
                key, chain = _unsealed(sealed, key_password or password or "", where), own
    except (ValueError, struct.error):
        raise ConfigError(f"{where} is a damaged JKS store") from None
    return Store(trusted, key, chain)


def _unsealed(sealed: bytes, password: str, where: str) -> str:
    """Return the private key that Java's KeyProtector has encrypted, as PEM."""
    if _SUN_KEY_PROTECTOR not in sealed[:40]:
        raise ConfigError(f"the key in {where} is encrypted in a way that klamm does not know")
    data = _last_octets(sealed)
    secret, salt, cipher, check = password.encode("utf-16-be"), data[:20], data[20:-20], data[-20:]
    stream, block = bytearray(), salt
    while len(stream) < len(cipher):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    plain = bytes(a ^ b for a, b in zip(cipher, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), check):
        raise ConfigError(f"the password of the key in {where} is wrong (ssl.key.password)")
    return _wrapped("PRIVATE KEY", b64encode(plain).decode())


def _last_octets(sealed: bytes) -> bytes:
    """Return the OCTET STRING that ends an EncryptedPrivateKeyInfo."""
    at = sealed.index(_SUN_KEY_PROTECTOR) + len(_SUN_KEY_PROTECTOR)
    if sealed[at : at + 2] == b"\x05\x00":
        at += 2
    if sealed[at] != 0x04:
        raise ValueError("no octet string")
    length, at = sealed[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, at = int.from_bytes(sealed[at : at + count], "big"), at + count
    if length < 40 or at + length > len(sealed):
        raise ValueError("cut short")
    return sealed[at : at + length]


def _read_pkcs12(content: bytes, password: str | None, where: str) -> Store:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigError(f"{where} is a PKCS12 store, which needs the package cryptography: {EXTRA}") from None
    try:
        store = load_pkcs12(content, None if password is None else password.encode())
    except ValueError:
        missing = " (none is given)" if password is None else ""
        raise ConfigError(f"the password of {where} is wrong{missing}, or the file is not a PKCS12 store") from None
    others = "".join(
        additional_cert.certificate.public_bytes(Encoding.PEM).decode() for additional_cert in store.additional_certs
    )
    if store.key is None:
        own = "" if store.cert is None else store.cert.certificate.public_bytes(Encoding.PEM).decode()
        return Store(own + others)
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    own = "" if store.cert is None else store.cert.certificate.public_bytes(Encoding.PEM).decode()
    return Store(others, key, own + others)
