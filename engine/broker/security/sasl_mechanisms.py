"""The server's side of SASL mechanisms: PLAIN, SCRAM, OAUTHBEARER without signatures. Pure: tokens in, tokens out.

An exchange is a generator that is sent the client's tokens and yields what to answer. It returns who has logged in.
The texts of refusals are Kafka's; clients see them.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import re
import secrets
from base64 import b64decode, b64encode, urlsafe_b64decode
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.common.errors import KlammError
from engine.kafka.formats.scram_credential import HASHES, ITERATIONS_MIN, ScramCredential


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """Who has logged in. ``token`` is the last answer to the client."""

    name: str
    answer: bytes = b""
    expires_at_ms: int | None = None
    """When the credentials expire, in ms since 1970; None: never."""
    is_by_token: bool = False
    """Whether the credentials are a delegation token."""


ServerExchange = Generator[bytes, bytes, LoggedIn]
"""Is first sent None, then the client's tokens."""


class LoginRefused(KlammError):
    """The login is refused. ``told`` is what the client may know; None: only that its credentials are invalid."""

    def __init__(self, message: str, *, told: bool = False) -> None:
        super().__init__(message)
        self.told = message if told else None


_OTHER_IDENTITY = "Authentication failed: Client requested an authorization id that is different from username"
_NO_SUCH_LOGIN = "Authentication failed: Invalid username or password"


def plain_server(passwords: Mapping[str, str]) -> ServerExchange:
    """Compare name and password with the ``user_<name>`` options of the login module (RFC 4616).

    Raises:
        LoginRefused.
    """
    token = yield b""
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise LoginRefused("Invalid SASL/PLAIN response: not UTF-8", told=True) from None
    if len(parts) != 3:
        raise LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}", told=True)
    identity, name, password = parts
    if not name:
        raise LoginRefused("Authentication failed: username not specified", told=True)
    if not password:
        raise LoginRefused("Authentication failed: password not specified", told=True)
    expected = passwords.get(name)
    # An unknown user takes as long as a wrong password.
    is_right = hmac.compare_digest((expected or secrets.token_hex()).encode(), password.encode())
    if expected is None or not is_right:
        raise LoginRefused(_NO_SUCH_LOGIN, told=True)
    if identity and identity != name:
        raise LoginRefused(_OTHER_IDENTITY, told=True)
    return LoggedIn(name)


_FIRST = re.compile(r"n,(?:a=(?P<identity>[^,]*))?,n=(?P<name>[^,]*),r=(?P<nonce>[!-+\--~]+)(?P<more>(?:,.*)?)")
_FINAL = re.compile(
    r"(?P<without_proof>c=[A-Za-z0-9+/=]*,r=(?P<nonce>[!-+\--~]+)(?:,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_IS_TOKEN = ",tokenauth="

Candidate = tuple[ScramCredential, LoggedIn]
"""A credential, and who has logged in if the client proves to know its password."""

CandidateOf = Callable[[str, bool], Candidate | None]
"""Finds it by the user's name, or by a delegation token's id if the second argument is True."""


def scram_server(mechanism: str, candidate_of: CandidateOf, *, nonce: str | None = None) -> ServerExchange:
    """Have the client prove that it knows the password (RFC 5802). Nothing that is sent reveals it.

    Raises:
        LoginRefused.
    """
    hash_name = HASHES[mechanism]
    first = _text((yield b""))
    match = _FIRST.fullmatch(first)
    if match is None:
        raise LoginRefused("the first SCRAM message is malformed")
    name = _name(match["name"])
    if match["identity"] and _name(match["identity"]) != name:
        raise LoginRefused(_OTHER_IDENTITY, told=True)
    is_token = match["more"].rpartition(_IS_TOKEN)[2].partition(",")[0].lower() == "true"
    candidate = candidate_of(name, is_token)
    if candidate is None:
        raise LoginRefused(f"no {mechanism} credential of {'token ' if is_token else ''}{name}")
    credential, who = candidate
    if credential.iterations < ITERATIONS_MIN:
        raise LoginRefused(f"the credential of {name} has too few iterations")
    full_nonce = match["nonce"] + (nonce or b64encode(secrets.token_bytes(24)).decode())
    server_first = f"r={full_nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
    final = _text((yield server_first.encode()))
    answered = _FINAL.fullmatch(final)
    if answered is None:
        raise LoginRefused("the last SCRAM message is malformed")
    # librdkafka before 2.6.1 puts its own nonce in front once more (its issue 4895), and Kafka since 3.8.1 lets it. The
    # server's nonce still stands at the end, and a replayed message cannot have that.
    if not answered["nonce"].endswith(full_nonce):
        raise LoginRefused("the nonce in the last SCRAM message is another")
    auth_message = f"{first[match.start('name') - 2 :]},{server_first},{answered['without_proof']}".encode()
    signature = hmac.digest(credential.stored_key, auth_message, hash_name)
    proof = _decoded(answered["proof"])
    if len(proof) != len(signature):
        raise LoginRefused("the proof has another length")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    if not hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), credential.stored_key):
        raise LoginRefused(f"{name} does not know the password")
    proven = hmac.digest(credential.server_key, auth_message, hash_name)
    return replace(who, answer=f"v={b64encode(proven).decode()}".encode())


_OAUTH = re.compile(r"n,(?:a=(?P<identity>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[!-~ \t\r\n]*\x01)*+)\x01")
_AUTH = "\x01auth="
_TOKEN_REFUSED = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
_CONTROL_A = b"\x01"


def oauthbearer_server(validate: Callable[[str], LoggedIn]) -> ServerExchange:
    """Take a token (RFC 7628). A refused client gets a challenge that it acknowledges, then an error.

    ``validate`` raises LoginRefused for a token that does not count.

    Raises:
        LoginRefused.
    """
    first = _text((yield b""))
    match = _OAUTH.fullmatch(first)
    pairs = f"\x01{match['pairs']}" if match else ""
    scheme, _, token = pairs.rpartition(_AUTH)[2].partition("\x01")[0].partition(" ")
    if match is None or scheme.lower() != "bearer" or not token.strip():
        raise LoginRefused("the OAUTHBEARER message is malformed")
    try:
        logged_in = validate(token.strip())
        # JSON can hold halves of characters, which no answer and no log can.
        logged_in.name.encode()
    except (LoginRefused, UnicodeEncodeError) as refused:
        if (yield _TOKEN_REFUSED.encode()) != _CONTROL_A:
            raise LoginRefused("a refused token was not acknowledged") from refused
        raise LoginRefused(_TOKEN_REFUSED, told=True) from refused
    if match["identity"] and match["identity"] != logged_in.name:
        raise LoginRefused(
            f"Authentication failed: Client requested an authorization id ({match['identity']}) that is different "
            f"from the token's principal name ({logged_in.name})",
            told=True,
        )
    return logged_in


def unsecured_validator(options: Mapping[str, str], now_ms: Callable[[], int]) -> Callable[[str], LoggedIn]:
    """Return what checks tokens without a signature, as the options of Kafka's unsecured login module ask.

    Anybody can make such a token: it is for trials.

    Raises:
        ValueError: a number among the options is none.
    """
    name_claim = options.get("unsecuredValidatorPrincipalClaimName") or "sub"
    scope_claim = options.get("unsecuredValidatorScopeClaimName") or "scope"
    required = set((options.get("unsecuredValidatorRequiredScope") or "").split())
    skew_ms = int(options.get("unsecuredValidatorAllowableClockSkewMs") or 0)

    def validate(token: str) -> LoggedIn:
        header, claims = _jwt(token)
        if header.get("alg") != "none" or not token.endswith("."):
            raise LoginRefused("the token has a signature, which nobody checks here")
        name = name_in(claims, name_claim)
        expires_s, issued_s = seconds(claims.get("exp")), seconds(claims.get("iat", 0))
        if int(issued_s * 1000) > now_ms() + skew_ms or expires_s * 1000 <= now_ms() - skew_ms:
            raise LoginRefused("the token has expired, or is not valid yet")
        scope = claims.get(scope_claim, [])
        given = scope.split() if isinstance(scope, str) else scope if isinstance(scope, list) else []
        if not all(each in given for each in required):
            raise LoginRefused("the token lacks a required scope")
        return LoggedIn(name, expires_at_ms=int(expires_s * 1000))

    return validate


def _jwt(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims."""
    try:
        header, claims, _ = (part + "=" * (-len(part) % 4) for part in token.split("."))
        parts = json.loads(urlsafe_b64decode(header)), json.loads(urlsafe_b64decode(claims))
    except (ValueError, RecursionError):
        raise LoginRefused("the token is malformed") from None
    if not isinstance(parts[0], dict) or not isinstance(parts[1], dict):
        raise LoginRefused("the token is malformed")
    return parts


def name_in(claims: Mapping[str, Any], name_claim: str) -> str:
    """Return the user's name among a token's claims. Raises LoginRefused: there is none."""
    name = claims.get(name_claim)
    if not isinstance(name, str) or not name.strip():
        raise LoginRefused(f"the token has no {name_claim}")
    return name


def seconds(value: object) -> float:
    """Return a time among a token's claims, in seconds since 1970. Raises LoginRefused: it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e12:
        raise LoginRefused("the token's times are missing or malformed")
    return value


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise LoginRefused("the message is not UTF-8") from None


def _name(escaped: str) -> str:
    """Return a name as it was before it was escaped for SCRAM."""
    name = escaped.replace("=2C", ",").replace("=3D", "=")
    if escaped.replace("=2C", "").replace("=3D", "").count("="):
        raise LoginRefused("the name in the SCRAM message is malformed")
    return name


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise LoginRefused("the proof is malformed") from None
