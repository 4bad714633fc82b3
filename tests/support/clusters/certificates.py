"""Certificates for tests, made when they are needed: a CA, and what it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Signed:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        """Return the key as PKCS8, encrypted if there is a password."""
        how: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        )
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """Write key and certificate into one file."""
        path.write_text(self.key_pem(password) + self.certificate_pem)
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        """Write key and certificate into a PKCS12 store."""
        how = BestAvailableEncryption(password.encode())
        path.write_bytes(serialize_key_and_certificates(b"own", self.key, self.certificate, None, how))
        return path

    def write_jks(self, path: Path, password: str) -> Path:
        """Write key and certificate into a key store of Java's, by its own keytool."""
        p12 = self.write_pkcs12(path.with_suffix(".p12"), password)
        words = [
            "keytool", "-importkeystore", "-noprompt", "-srckeystore", p12, "-srcstoretype", "PKCS12",
            "-srcstorepass", password, "-destkeystore", path, "-deststoretype", "JKS", "-deststorepass", password,
            "-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1",
        ]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return path


class Authority:
    """A CA of its own, or one below another."""

    def __init__(self, name: str = "klamm test CA", above: Authority | None = None) -> None:
        self.own = _signed(name, None if above is None else above.own, (), is_ca=True, days=(-1, 30))

    @property
    def pem(self) -> str:
        return self.own.certificate_pem

    def sign(
        self, name: str, hosts: Sequence[str] = (), *, units: Sequence[str] = (), days: tuple[int, int] = (-1, 30)
    ) -> Signed:
        """Return a new certificate, valid from and until a number of days from now."""
        return _signed(name, self.own, hosts, units, is_ca=False, days=days)

    def write_signed_with_sha1(self, path: Path) -> Path:
        """Write a key and its certificate. The library refuses to sign with SHA-1, OpenSSL does not."""
        authority = self.own.write_pem(path.with_suffix(".ca"))
        path.write_text(self.sign("old").key_pem())
        request = subprocess.run(
            ["openssl", "req", "-new", "-key", path, "-subj", "/CN=old"], capture_output=True, check=True
        ).stdout
        sign = ["openssl", "x509", "-req", "-sha1", "-CA", authority, "-CAkey", authority, "-set_serial", "1"]
        certificate = subprocess.run(sign, input=request, capture_output=True, check=True).stdout.decode()
        path.write_text(path.read_text() + certificate)
        return path


def _signed(
    name: str,
    issuer: Signed | None,
    hosts: Sequence[str],
    units: Sequence[str] = (),
    *,
    is_ca: bool,
    days: tuple[int, int],
) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [(NameOID.COMMON_NAME, name), *((NameOID.ORGANIZATIONAL_UNIT_NAME, unit) for unit in units)]
    subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(days=days[0]))
        .not_valid_after(now + dt.timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
    return Signed(builder.sign(key if issuer is None else issuer.key, hashes.SHA256()), key)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
