"""What is wrong with stores and values is said with the property's name, and without its password."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from certificates import Authority, Signed
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from engine.common.errors import ConfigError
from engine.kafka.client.security import security_of
from engine.kafka.client.tls.context import client_context, own_chain, server_context, tls_failure, tls_settings

CA = Authority()


def test_by_default_the_host_is_checked_and_tls_is_new() -> None:
    context = client_context(tls_settings({}))
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    other = {"ssl.endpoint.identification.algorithm": ""}
    assert not client_context(tls_settings(other)).check_hostname
    assert client_context(tls_settings(other)).verify_mode == ssl.CERT_REQUIRED


def test_java_s_names_of_cipher_suites() -> None:
    suites = {
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    }
    context = client_context(tls_settings({"ssl.cipher.suites": ",".join(suites)}))
    ciphers = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert ciphers == set(suites.values())
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"ssl.truststore.location": "/absent"}, r"no such file or directory.*ssl.truststore.location=/absent"),
        ({"ssl.truststore.location": "{pem}"}, "set it to PEM"),
        ({"ssl.truststore.location": "{text}", "ssl.truststore.type": "PEM"}, "holds no PEM block"),
        ({"ssl.truststore.location": "{text}"}, "neither JKS nor PKCS12"),
        ({"ssl.truststore.location": "{text}", "ssl.truststore.type": "BKS"}, "BKS is not one of JKS"),
        ({"ssl.truststore.certificates": "{text}"}, "holds no PEM block"),
        ({"ssl.keystore.location": "{locked}", "ssl.keystore.type": "PEM"}, "give ssl.key.password"),
        (
            {"ssl.keystore.location": "{locked}", "ssl.keystore.type": "PEM", "ssl.key.password": "wr0ng"},
            "password of the key in ssl.keystore.location",
        ),
        ({"ssl.keystore.location": "{ca}", "ssl.keystore.type": "PEM"}, "holds no private key"),
        ({"ssl.keystore.location": "{sha1}", "ssl.keystore.type": "PEM"}, "sha1 is signed with SHA-1 .* with SHA-256"),
        ({"ssl.enabled.protocols": "SSLv3"}, "names none of"),
        ({"ssl.cipher.suites": "NONSENSE"}, "names no suite"),
    ],
)
def test_what_cannot_be_used(entries: dict[str, str], message: str, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("pem", "locked", "text", "ca", "sha1")}
    CA.sign("me").write_pem(files["pem"])
    CA.sign("me").write_pem(files["locked"], "s3cret")
    files["text"].write_text("nothing")
    files["ca"].write_text(CA.pem)
    CA.write_signed_with_sha1(files["sha1"])
    filled = {key: value.format(**files) for key, value in entries.items()}
    with pytest.raises(ConfigError, match=message) as caught:
        client_context(tls_settings(filled))
    assert "wr0ng" not in str(caught.value)


@pytest.mark.parametrize("password", [None, "s3cret"])
def test_a_certificate_that_is_too_weak_is_no_wrong_password(password: str | None, tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 1024)
    now = CA.sign("short").certificate
    short = x509.CertificateBuilder(
        now.issuer, now.subject, key.public_key(), now.serial_number, now.not_valid_before_utc, now.not_valid_after_utc
    ).sign(CA.own.key, hashes.SHA256())
    how = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    path = tmp_path / "short.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how) + short.public_bytes(Encoding.PEM))
    entries = {"ssl.keystore.location": str(path), "ssl.keystore.type": "PEM", "ssl.key.password": password or ""}
    with pytest.raises(ConfigError, match=r"short\.pem has a key that is too short for OpenSSL"):
        server_context(tls_settings(entries), "none")


@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.3", "TLSv1.2,TLSv1.1,TLSv1", "TLSv1.2,TLSv1.3"])
def test_a_listener_may_ask_for_certificates_in_each_version(versions: str, client_auth: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    CA.sign("me").write_pem(store)
    trust = tmp_path / "trust"
    trust.write_text(CA.pem)
    entries = {"ssl.keystore.location": str(store), "ssl.keystore.type": "PEM", "ssl.enabled.protocols": versions}
    entries |= {"ssl.truststore.location": str(trust), "ssl.truststore.type": "PEM"}
    modes = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
    assert server_context(tls_settings(entries), client_auth).verify_mode == modes[client_auth]


def test_blanks_around_a_value_do_not_count(tmp_path: Path) -> None:
    """As in Kafka: a line that ends in a blank, or a password's file that ends its line, is no other password."""
    store = tmp_path / "store"
    CA.sign("me").write_pem(store)
    entries = {"ssl.keystore.location": f" {store} ", "ssl.keystore.type": "PEM\t", "ssl.key.password": "pw \n"}
    assert dict(tls_settings(entries).entries) == {key: text.strip() for key, text in entries.items()}
    assert security_of({"security.protocol": " SSL ", **entries}).principal == "User:CN=me"


@pytest.mark.parametrize("store_type", ["PEM", "PKCS12"])
@pytest.mark.parametrize("between", [1, 9])
def test_a_store_may_hold_the_authorities_between_a_certificate_and_the_one_that_is_trusted(
    store_type: str, between: int, tmp_path: Path
) -> None:
    authorities = [CA]
    for number in range(between):
        authorities.append(Authority(f"CA {number}", authorities[-1]))
    own = authorities[-1].sign("me", ["me.example"])
    chain = [authority.own for authority in reversed(authorities[1:])]
    store = tmp_path / "store"
    if store_type == "PEM":
        store.write_text(
            own.key_pem() + "".join(f"# {each.certificate.subject}\n{each.certificate_pem}" for each in (own, *chain))
        )
    else:
        others = [signer.certificate for signer in chain]
        sealed = BestAvailableEncryption(b"pw")
        store.write_bytes(serialize_key_and_certificates(b"me", own.key, own.certificate, others, sealed))
    entries = {"ssl.keystore.location": str(store), "ssl.keystore.type": store_type, "ssl.keystore.password": "pw"}
    settings = tls_settings(entries)
    ders = tuple(each.certificate.public_bytes(Encoding.DER) for each in (own, *chain))
    assert own_chain(settings) == ders
    assert security_of({"security.protocol": "SSL", **entries}).principal == "User:CN=me"
    client = ssl.create_default_context(cadata=CA.pem)
    assert handshake(server_context(settings, "none"), client).getpeercert(binary_form=True) == ders[0]


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Let a client shake hands with me.example; return its end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="me.example"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for end in (*ends, *ends):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return ends[0]


@pytest.mark.parametrize(
    ("signer", "message", "hint"),
    [
        (Authority(), "the CA in the trust store has the name of the one that signed the certificate", "renewed"),
        (CA.sign("no CA"), "the certificate is refused: invalid CA certificate", "openssl s_client -showcerts"),
    ],
    ids=["renewed", "no CA"],
)
def test_a_certificate_of_a_wrong_signer(signer: Authority | Signed, message: str, hint: str, tmp_path: Path) -> None:
    authority = Authority()
    authority.own = signer if isinstance(signer, Signed) else signer.own
    own = authority.sign("me", ["me.example"])
    (tmp_path / "store").write_text(own.key_pem() + own.certificate_pem + authority.pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "store")
    with pytest.raises(ssl.SSLCertVerificationError) as refused:
        handshake(server, ssl.create_default_context(cadata=CA.pem))
    failure = asyncio.run(tls_failure(refused.value, tls_settings({}), "me.example", 9093))
    assert message in str(failure) and hint in (failure.hint or ""), (str(failure), failure.hint)
