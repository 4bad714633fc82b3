"""OAUTHBEARER tokens with signatures: which count, where the keys come from, and which settings stop a start."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
import pytest
from certificates import Authority
from cryptography.hazmat.primitives.asymmetric import rsa
from token_provider import (
    ED_KEY,
    KEYS,
    NOW,
    OTHER_KEY,
    RSA_KEY,
    WEAK_KEY,
    bad_tokens,
    good_tokens,
    jwk,
    key_set,
    token,
)

from engine.broker.security import signed_tokens
from engine.broker.security.login_settings import listener_logins
from engine.broker.security.sasl_mechanisms import LoggedIn, LoginRefused
from engine.broker.security.signed_tokens import SigningKeys, signed_validator, signing_keys
from engine.common.errors import ConfigError
from engine.kafka.config.broker import BrokerConfig

NOW_MS = NOW * 1000
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PATIENCE_S = 20.0


def settings(url: str | None, **changed: str) -> BrokerConfig:
    own = {"sasl.oauthbearer.expected.audience": "other, brokers", "sasl.oauthbearer.expected.issuer": "https://idp"}
    own |= {"sasl.oauthbearer.jwks.endpoint.url": url} if url is not None else {}
    own |= {name.replace("_", "."): value for name, value in changed.items()}
    return BrokerConfig({"broker.id": "0", "zookeeper.connect": "z:1"} | own)


def validate(folder: Path, text: str, **changed: str) -> LoggedIn:
    path = folder / "keys.json"
    path.write_text(KEYS)

    async def check() -> LoggedIn:
        config = settings(path.as_uri(), **changed)
        keys = SigningKeys(config, {})
        await keys.start()
        return signed_validator(config, keys, lambda: NOW_MS)(text)

    return asyncio.run(check())


@pytest.mark.parametrize("what", good_tokens())
def test_a_token_of_the_provider_counts(tmp_path: Path, what: str) -> None:
    assert validate(tmp_path, good_tokens()[what]).name == what.split(",")[0]


def test_edwards_curves_count(tmp_path: Path) -> None:
    """Kafka has them with Java 15 and newer."""
    assert validate(tmp_path, token(ED_KEY, "EdDSA", "ed")).name == "alice"


def test_a_login_lasts_as_long_as_its_token_and_claims_may_have_other_names(tmp_path: Path) -> None:
    assert validate(tmp_path, token()).expires_at_ms == (NOW + 60) * 1000
    named = token(sub=None, user="carol", scp=["x"])
    assert validate(tmp_path, named, sasl_oauthbearer_sub_claim_name="user",
                    sasl_oauthbearer_scope_claim_name="scp").name == "carol"  # fmt: skip
    assert validate(tmp_path, token(exp=-5), sasl_oauthbearer_clock_skew_seconds="6").name == "alice"


@pytest.mark.parametrize("what", [*bad_tokens(), "number", "shared key", "nothing", "dots", "deep"])
def test_any_other_token_counts_for_nothing(tmp_path: Path, what: str) -> None:
    shared = token("secret-secret-secret-secret-secret-s", "HS256", "shared")
    # Kafka fails at a scope that is a number, and just closes the connection.
    number = token(scope=["a", 1])
    own = {"number": number, "shared key": shared, "nothing": "", "dots": "..", "deep": "[" * 100_000}
    with pytest.raises(LoginRefused) as caught:
        validate(tmp_path, (bad_tokens() | own)[what])
    assert caught.value.told is None


def test_no_audience_is_expected_so_none_may_be_meant(tmp_path: Path) -> None:
    """As jose4j has it: a token for somebody else is for nobody who does not know his own name."""
    assert validate(tmp_path, token(aud=None), sasl_oauthbearer_expected_audience="").name == "alice"
    with pytest.raises(LoginRefused):
        validate(tmp_path, token(), sasl_oauthbearer_expected_audience="")


class Provider(BaseHTTPRequestHandler):
    """Serves what its class has."""

    document = KEYS
    code = 200
    served = 0

    def do_GET(self) -> None:
        type(self).served += 1
        self.send_response(self.code)
        self.end_headers()
        self.wfile.write(self.document.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def provider(tls: ssl.SSLContext | None = None) -> Iterator[tuple[type[Provider], str]]:
    handler = type("OneProvider", (Provider,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield handler, f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/keys"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def until(validator: Any, text: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                validator(text)
                return
            except LoginRefused:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("refresh_ms", [50, 3_600_000])
def test_new_keys_count_when_it_is_time_or_a_token_names_one(refresh_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_tokens, "UNKNOWN_KEY_INTERVAL_MS", 30)

    async def check(served: type[Provider], url: str) -> None:
        config = settings(url, sasl_oauthbearer_jwks_endpoint_refresh_ms=str(refresh_ms))
        keys = SigningKeys(config, {})
        await keys.start()
        validator = signed_validator(config, keys, lambda: NOW_MS)
        assert validator(token()).name == "alice"
        fresh = token(OTHER_KEY, kid="fresh")
        # While the provider fails, the keys stay.
        served.code = 500
        before = served.served
        with pytest.raises(LoginRefused):
            validator(fresh)
        async with asyncio.timeout(PATIENCE_S):
            while served.served < before + 2:
                await asyncio.sleep(0.02)
        assert validator(token()).name == "alice"
        served.code, served.document = 200, key_set(jwk(OTHER_KEY, kid="fresh"))
        await until(validator, fresh)
        with pytest.raises(LoginRefused):
            validator(token())
        await keys.stop()

    with provider() as (served, url):
        asyncio.run(check(served, url))


def test_keys_come_over_https_from_whom_the_login_module_trusts(tmp_path: Path) -> None:
    """``ssl.*`` of the module in ``sasl.jaas.config`` says whom, as in Kafka."""
    ca, other = Authority(), Authority("another CA")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(ca.sign("idp", ["127.0.0.1"]).write_pem(tmp_path / "idp.pem"))

    async def check(url: str, name: str, trusted: Authority) -> LoggedIn:
        (tmp_path / name).write_text(trusted.pem)
        options = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / name)}
        keys = SigningKeys(settings(url), options)
        await keys.start()
        try:
            return signed_validator(settings(url), keys, lambda: NOW_MS)(token())
        finally:
            await keys.stop()

    with provider(tls) as (_, url):
        assert asyncio.run(check(url, "ca.pem", ca)).name == "alice"
        with pytest.raises(ConfigError, match=r"https://127\.0\.0\.1:\d+/keys: .*certificate"):
            asyncio.run(check(url, "other.pem", other))


def test_unknown_keys_by_the_thousand_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_tokens, "UNKNOWN_KEY_INTERVAL_MS", 300)

    async def check(served: type[Provider], url: str) -> None:
        config = settings(url)
        keys = SigningKeys(config, {})
        await keys.start()
        for number in range(2000):
            assert keys.key_of({"kid": str(number), "alg": "RS256"}) is None
            if number % 100 == 0:
                await asyncio.sleep(0.01)
        await keys.stop()
        assert served.served <= 2

    with provider() as (served, url):
        asyncio.run(check(served, url))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"jwks": None}, "sasl.oauthbearer.jwks.endpoint.url is missing"),
        ({"jwks": "ftp://idp/keys"}, "is not an address"),
        ({"jwks": "idp"}, "is not an address"),
        ({"jwks": "file:///nowhere/keys.json"}, "file:///nowhere/keys.json: No such file"),
        ({"jwks": "http://user:hidden@127.0.0.1:1/keys?key=hidden"}, "http://127.0.0.1:1/keys: "),
        ({"document": "no"}, "it is not a JSON Web Key Set"),
        ({"document": "[]"}, "it is not a JSON Web Key Set"),
        ({"document": '{"keys": []}'}, "no public key"),
        ({"document": key_set(jwk(WEAK_KEY, kid="weak"))}, "no public key"),
        ({"handler": None}, "nothing checks tokens by it"),
        ({"handler": "com.example.Validator"}, "is a Java class, which this broker cannot run"),
        ({"refresh": "often"}, "refresh.ms"),
        ({"refresh": "0"}, "refresh.ms=0 is not a number of milliseconds"),
    ],
)
def test_wrong_settings_stop_the_start(tmp_path: Path, changed: dict[str, str | None], said: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(changed.get("document") or KEYS)
    own = {
        "sasl.server.callback.handler.class": changed.get("handler", HANDLER),
        "sasl.oauthbearer.jwks.endpoint.url": changed.get("jwks", path.as_uri()),
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": changed.get("refresh"),
        "sasl.jaas.config": f"{MODULE} required;",
    }
    texts = {
        "broker.id": "0",
        "zookeeper.connect": "z:1",
        "listeners": "SAFE://localhost:9093",
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SAFE",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        **{f"listener.name.safe.oauthbearer.{name}": text for name, text in own.items() if text is not None},
    }

    async def start() -> None:
        await listener_logins(BrokerConfig(texts), {})["SAFE"].start()

    with pytest.raises(ConfigError) as caught:
        asyncio.run(start())
    assert said in str(caught.value) and str(caught.value).startswith("listener SAFE: ")
    assert "hidden" not in str(caught.value)


def test_keys_are_public_and_their_private_parts_are_left_alone() -> None:
    private = jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY, as_dict=True)
    (key,) = signing_keys(key_set({**private, "kid": "p", "alg": "RS512"}).encode())
    assert key.algorithms == ("RS512",) and isinstance(key.public, rsa.RSAPublicKey)
