"""Tokens: where they come from, what goes wrong there, and what is sent."""

from __future__ import annotations

import json
import sys
import threading
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from engine.common.errors import ConfigError
from engine.kafka.client.sasl.exchange import SaslError
from engine.kafka.client.sasl.oauthbearer import (
    expires_at_s,
    extensions_of,
    oauthbearer_exchange,
    token_from_command,
    token_from_file,
    token_from_provider,
    unsecured_token,
)
from engine.kafka.client.sasl.settings import exchange_for, sasl_settings

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def test_what_is_sent() -> None:
    exchange = oauthbearer_exchange("abc", {"traceId": "7"})
    assert next(exchange) == b"n,,\x01auth=Bearer abc\x01traceId=7\x01\x01"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_a_refusal_is_acknowledged() -> None:
    exchange = oauthbearer_exchange("abc", {})
    next(exchange)
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslError, match="invalid_token"):
        exchange.send(b"")


def test_an_unsecured_token() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginListClaim_scope": "|a|b",
        "unsecuredLoginNumberClaim_level": "3",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    token = unsecured_token(options, now_s=1000.0009)
    header, claims, signature = token.split(".")
    assert json.loads(urlsafe_b64decode(header + "==")) == {"alg": "none"}
    said = json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert said == {"sub": "alice", "scope": ["a", "b"], "level": 3.0, "iat": 1000.0, "exp": 1060.0}
    assert (signature, expires_at_s(token), expires_at_s("opaque")) == ("", 1060.0, None)
    with pytest.raises(SaslError, match="names no subject"):
        unsecured_token({})


def test_extensions() -> None:
    assert extensions_of({"extension_a": "1", "unsecuredLoginExtension_b": "2", "scope": "x"}) == {"a": "1", "b": "2"}
    with pytest.raises(SaslError, match="malformed"):
        extensions_of({"extension_auth": "x"})


def test_tokens_of_files_and_commands(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc.def\n")
    assert token_from_file(file) == "abc.def"
    assert token_from_command(f"{sys.executable} -c 'print(\"abc.def\")'") == "abc.def"
    file.write_text("")
    with pytest.raises(SaslError, match="holds no token"):
        token_from_file(file)
    with pytest.raises(SaslError, match="No such file"):
        token_from_file(tmp_path / "absent")
    with pytest.raises(SaslError, match="ended with 3"):
        token_from_command(f"{sys.executable} -c 'raise SystemExit(3)'")
    with pytest.raises(SaslError, match="cannot run"):
        token_from_command(str(tmp_path / "absent"))


class Provider(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, str]]] = []
    answer: ClassVar[tuple[int, Any]] = (200, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], body))
        self.send_response(self.answer[0])
        self.end_headers()
        self.wfile.write(json.dumps(self.answer[1]).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join()


def test_client_credentials(provider: str) -> None:
    Provider.answer = (200, {"access_token": "abc", "expires_in": 60})
    assert token_from_provider(provider, "me", "s3cret", "kafka") == "abc"
    assert Provider.asked[-1] == ("Basic bWU6czNjcmV0", "grant_type=client_credentials&scope=kafka")
    Provider.answer = (401, {"error": "invalid_client"})
    with pytest.raises(SaslError, match=r"refuses with 401 \(invalid_client\)") as caught:
        token_from_provider(provider, "me", "s3cret", None)
    assert "s3cret" not in str(caught.value)
    Provider.answer = (200, {"token": "abc"})
    with pytest.raises(SaslError, match="holds no token"):
        token_from_provider(provider, "me", "s3cret", None)


def test_the_options_of_strimzi_are_client_credentials(provider: str) -> None:
    def entries(more: str = "") -> dict[str, str]:
        options = f'oauth.token.endpoint.uri="{provider}" oauth.client.id="me" oauth.client.secret="s3cret" {more}'
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
            "sasl.jaas.config": f"{MODULE} required {options};",
        }

    Provider.answer = (200, {"access_token": "abc.def", "expires_in": 60})
    said = 'oauth.scope="kafka" oauth.ssl.truststore.location="/absent"'
    assert next(exchange_for(sasl_settings(entries(said)), "broker")) == b"n,,\x01auth=Bearer abc.def\x01\x01"
    assert Provider.asked[-1] == ("Basic bWU6czNjcmV0", "grant_type=client_credentials&scope=kafka")
    settings = sasl_settings(entries(said))
    assert (settings.identity, dict(settings.options)["ssl.truststore.location"]) == ("me by OAUTHBEARER", "/absent")
    with pytest.raises(ConfigError, match=r"the JAAS option oauth\.refresh\.token is not supported") as caught:
        sasl_settings(entries('oauth.refresh.token="s3cret"'))
    assert "s3cret" not in str(caught.value)


def test_a_provider_that_is_not_there() -> None:
    with pytest.raises(SaslError, match=r"http://127.0.0.1:1/token cannot be reached: [A-Z]"):
        token_from_provider("http://me:s3cret@127.0.0.1:1/token?x=s3cret", "me", "s3cret", None)
