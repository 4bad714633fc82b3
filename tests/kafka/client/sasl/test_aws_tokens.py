"""Tokens of Amazon's IAM, as MSK's brokers see them: the signature is computed anew by AWS's published rules.

Nobody here has an MSK. The rules are those of "Authenticating requests: using query parameters (AWS Signature Version
4)"; its own example shows that they are followed. Whether MSK accepts the token is not tested.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from event_loop import in_event_loop
from network_serving import answer_api_versions, read_frame

from engine.common.errors import ErrorCode
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import LoginFailed
from engine.kafka.client.security import security_of
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from engine.kafka.protocol.declaration import Response
from engine.kafka.protocol.frames import decode_request, encode_response
from engine.local.addresses import own_loopback_address

REGION, KEY_ID, SECRET = "eu-central-1", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
EMPTY = hashlib.sha256(b"").hexdigest()
PUBLISHED = (
    "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
    "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"
    "&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
)
"""The example of AWS's documentation, signed with the key above."""


def is_signed(url: str, secret: str, payload_hash: str) -> bool:
    """Whether the signature in a URL is right."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    signature = given.pop("X-Amz-Signature")
    query = "&".join(sorted(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in given.items()))
    request = f"GET\n{parts.path}\n{query}\nhost:{parts.netloc}\n\nhost\n{payload_hash}"
    _, day, region, service, ending = given["X-Amz-Credential"].split("/")
    scope = f"{day}/{region}/{service}/{ending}"
    signed = (
        f"AWS4-HMAC-SHA256\n{given['X-Amz-Date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    ).encode()
    key = f"AWS4{secret}".encode()
    for word in (day, region, service, ending):
        key = hmac.digest(key, word.encode(), "sha256")
    return hmac.compare_digest(signature, hmac.digest(key, signed, "sha256").hex())


def test_the_rules_are_those_that_aws_has_published() -> None:
    assert is_signed(PUBLISHED, SECRET, "UNSIGNED-PAYLOAD")
    assert not is_signed(PUBLISHED.replace("86400", "86401"), SECRET, "UNSIGNED-PAYLOAD")


class Msk:
    """A broker that lets in who signs with the secret, and keeps what it was sent."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.mechanisms: list[str] = []

    def answer(self, request: object) -> Response:
        match request:
            case SaslHandshakeRequest():
                self.mechanisms.append(request.mechanism)
                return SaslHandshakeResponse(error_code=0, mechanisms=["OAUTHBEARER"])
            case SaslAuthenticateRequest():
                return self._let_in(bytes(request.auth_bytes))
            case MetadataRequest():
                return MetadataResponse(brokers=[], topics=[], cluster_id="msk")
        raise AssertionError(request)

    def _let_in(self, first: bytes) -> SaslAuthenticateResponse:
        if first == b"\x01":
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="Access denied", auth_bytes=b""
            )
        match = re.fullmatch(rb"n,,\x01auth=Bearer ([A-Za-z0-9_-]+)\x01\x01", first)
        assert match is not None, first
        self.urls.append(urlsafe_b64decode(match[1] + b"=" * (-len(match[1]) % 4)).decode())
        # The signer adds this after it has signed, as MSK documents it.
        signed = re.sub(r"&User-Agent=[^&]*", "", self.urls[-1])
        is_known = is_signed(signed, SECRET, EMPTY)
        return SaslAuthenticateResponse(
            error_code=0, auth_bytes=b"" if is_known else json.dumps({"status": "no"}).encode()
        )


@asynccontextmanager
async def serving(msk: Msk) -> AsyncIterator[BrokerClient]:
    """Serve at a free port; yield a client that is to log in there."""

    class OfLogins:
        login = object()

    class Asked:
        session = OfLogins

    ended: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(end := asyncio.Event())
        try:
            while True:
                head, request = decode_request(await read_frame(reader))
                is_first = isinstance(request, ApiVersionsRequest)
                answer = answer_api_versions(Asked, request) if is_first else msk.answer(request)  # type: ignore[arg-type]
                writer.write(bytes(encode_response(answer, head.api_key, head.api_version, head.correlation_id)))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            await writer.wait_closed()
            end.set()

    server = await asyncio.start_server(serve, own_loopback_address(), 0)
    host, port = server.sockets[0].getsockname()
    entries = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    client = BrokerClient(host, port, client_id="test", security=security_of(entries))
    try:
        yield client
    finally:
        await client.close()
        server.close()
        for end in ended:
            await end.wait()


@pytest.mark.parametrize("session", ["", "temp0rary/session+token="])
@pytest.mark.parametrize("secret", [SECRET, "an0ther-Secr3t"])
@in_event_loop
async def test_a_broker_that_checks_the_signature(secret: str, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": REGION}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    if session:
        monkeypatch.setenv("AWS_SESSION_TOKEN", session)
    else:
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    msk = Msk()
    async with serving(msk) as client:
        if secret == SECRET:
            assert (await client.send(MetadataRequest(topics=[]), 4)).cluster_id == "msk"
        else:
            with pytest.raises(LoginFailed) as refused:
                await client.send(MetadataRequest(topics=[]), 4)
            assert "AWS_MSK_IAM" in str(refused.value) and secret not in str(refused.value)
    assert msk.mechanisms[0] == "OAUTHBEARER", "MSK takes tokens by the mechanism of clients that are not Java's"
    url = urlsplit(msk.urls[0])
    said = dict(parse_qsl(url.query))
    assert (url.scheme, url.netloc, url.path) == ("https", f"kafka.{REGION}.amazonaws.com", "/")
    assert said["Action"] == "kafka-cluster:Connect" and said["X-Amz-Expires"] == "900"
    key_id, _, region, service, _ = said["X-Amz-Credential"].split("/")
    assert (key_id, region, service) == (KEY_ID, REGION, "kafka-cluster")
    assert said["X-Amz-SignedHeaders"] == "host" and said.get("X-Amz-Security-Token", "") == session
    assert secret not in msk.urls[0]
