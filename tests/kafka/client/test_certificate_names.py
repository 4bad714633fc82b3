"""Subjects of certificates as Java writes them, and what a listener's rules make of them.

The expected subjects are what ``X500Principal.getName`` of Java 17 printed for the same certificates.
"""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from engine.broker.security.listener_security import PrincipalRules
from engine.common.errors import ConfigError, RemoteProtocolError
from engine.kafka.client.tls.certificate import alternative_names, subject_of

Attribute = x509.NameAttribute
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(parts: list[x509.RelativeDistinguishedName], hosts: tuple[str, ...] = ()) -> bytes:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(parts))
        .issuer_name(x509.Name([Attribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), True)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def name(*attributes: x509.NameAttribute[str]) -> list[x509.RelativeDistinguishedName]:
    return [x509.RelativeDistinguishedName([attribute]) for attribute in attributes]


COUNTRY, ORGANIZATION, UNIT, COMMON = (
    NameOID.COUNTRY_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COMMON_NAME,
)  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            name(Attribute(COUNTRY, "DE"), Attribute(ORGANIZATION, "Test"), Attribute(UNIT, "people"),
                 Attribute(COMMON, "Anna Example")),
            "CN=Anna Example,OU=people,O=Test,C=DE",
        ),
        (
            name(Attribute(COMMON, '  lead,trail+ "q" <x>;#=\\ '), Attribute(NameOID.EMAIL_ADDRESS, "a@b.c")),
            '1.2.840.113549.1.9.1=#16056140622e63,CN=\\ \\ lead\\,trail\\+ \\"q\\" \\<x\\>\\;\\#\\=\\\\\\ ',
        ),
        (name(Attribute(COMMON, "\r a\r b \r")), "CN=\\\r\\ a\r b\\ \\\r"),
        (name(Attribute(COMMON, "\r ")), "CN=\\\r\\ "),
        (
            name(Attribute(COMMON, "Jürgen Müller"), Attribute(NameOID.DOMAIN_COMPONENT, "example"),
                 Attribute(NameOID.DOMAIN_COMPONENT, "com"), Attribute(NameOID.USER_ID, "jm"),
                 Attribute(NameOID.STREET_ADDRESS, "Weg 1"), Attribute(NameOID.STATE_OR_PROVINCE_NAME, "BY"),
                 Attribute(NameOID.LOCALITY_NAME, "M"), Attribute(NameOID.SURNAME, "M"),
                 Attribute(NameOID.SERIAL_NUMBER, "12"), Attribute(NameOID.TITLE, "Dr")),
            "2.5.4.12=#0c024472,2.5.4.5=#13023132,2.5.4.4=#0c014d,L=M,ST=BY,STREET=Weg 1,UID=jm,DC=com,DC=example,"
            "CN=Jürgen Müller",
        ),
        (name(Attribute(ObjectIdentifier("2.999.3"), "odd")), "2.999.3=#0c036f6464"),
        (name(Attribute(COMMON, " ")), "CN=\\ "),
        (name(Attribute(COMMON, "bmp", _ASN1Type.BMPString)), "CN=\\00b\\00m\\00p"),
        ([], ""),
        (
            [x509.RelativeDistinguishedName([Attribute(UNIT, "b"), Attribute(COMMON, "a")]),
             *name(Attribute(ORGANIZATION, "o"))],
            "O=o,CN=a+OU=b",
        ),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_in_java(parts: list[x509.RelativeDistinguishedName], said: str) -> None:
    assert subject_of(certificate(parts)) == said


def test_alternative_names_are_found_and_compared() -> None:
    few, more = (certificate(name(Attribute(COMMON, "b")), hosts) for hosts in (("a.x",), ("b.x", "a.x")))
    assert alternative_names(few) < alternative_names(more)
    assert alternative_names(certificate(name(Attribute(COMMON, "b")))) == frozenset()


@pytest.mark.parametrize("garbage", [b"", b"\x30", b"\x30\x03\x30\x01\x00", bytes(100)])
def test_what_is_no_certificate_is_a_typed_error(garbage: bytes) -> None:
    for bad in (garbage, certificate([])[:90] + garbage):
        with pytest.raises(RemoteProtocolError):
            subject_of(bad)


SUBJECT = "CN=Anna Example,OU=people,O=Test,C=DE"


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),OU=people.*$/$1/", "Anna Example"),
        ("RULE:^CN=(.*?),OU=people.*$/$1/L", "anna example"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2@$1/U , DEFAULT", "PEOPLE@ANNA EXAMPLE"),
        ("RULE:^OU=.*$/x/, RULE:^CN=([^,]*),OU=(.*?),O=(.*?),.*$/$1.$9/", "Anna Example.$9"),
        ("RULE:^.*OU=ser\\/vice.*$/x/,DEFAULT", SUBJECT),
        ("RULE:^CN=.*$/a\\b\\\\c\\/d/", "ab\\c/d"),
    ],
)
def test_the_first_rule_that_fits_names_the_user(rules: str, user: str) -> None:
    assert PrincipalRules(rules).name_of(SUBJECT) == user


def test_classes_of_characters_mean_ascii_as_in_java() -> None:
    rules = PrincipalRules(r"RULE:^CN=(\w+)$/$1/,RULE:^CN=([^,]+)$/other:$1/")
    assert [rules.name_of(subject) for subject in ("CN=anna", "CN=jürgen")] == ["anna", "other:jürgen"]


def test_a_rule_of_no_use_and_a_malformed_one() -> None:
    with pytest.raises(RemoteProtocolError, match="people"):
        PrincipalRules("RULE:^OU=.*$/x/").name_of(SUBJECT)
    for malformed in ("RULE:^CN=(/x/", "CN=.*", "RULE:^CN=.*$/x", "default", "RULE:^CN=.*$/x/X", "RULE:^CN=.*$/x/LU"):
        with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
            PrincipalRules(malformed)
