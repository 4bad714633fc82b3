"""SASL OAUTHBEARER (RFC 7628) and where its tokens come from (KIP-255, KIP-768).

A token comes from an identity provider (client credentials), a file, a command, or, for tests of a cluster only, from
the client itself: unsecured, without a signature.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from engine.kafka.client.sasl.exchange import Exchange, SaslError

_STRING, _NUMBER, _LIST = "unsecuredLoginStringClaim_", "unsecuredLoginNumberClaim_", "unsecuredLoginListClaim_"
_EXTENSION_OPTIONS = ("unsecuredLoginExtension_", "extension_")
_EXTENSION_NAME, _EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")
_MSK_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_TOKEN = re.compile(r"[\x21-\x7e]+")
FETCH_TIMEOUT_S = 10.0
"""How long a command, or one answer of an identity provider, may take."""


def oauthbearer_exchange(token: str, extensions: Mapping[str, str]) -> Exchange:
    """Send the token; a refusal comes as a JSON text, which is acknowledged so that the error follows.

    Raises:
        SaslError: the server refuses the token.
    """
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    challenge = yield f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()
    if challenge:
        yield b"\x01"
        raise SaslError(f"the broker refuses the token: {_status(challenge)}")


def token_of_aws(options: Mapping[str, str], host: str) -> str:
    """Return a token of Amazon's IAM for a broker of its MSK, made here of the credentials that boto3 finds.

    ``options`` are those of Java's ``IAMLoginModule``: ``awsProfileName``, ``awsRoleArn``, ``awsRoleSessionName``,
    ``awsStsRegion``. The region is the one in the broker's name, else the environment's.

    Raises:
        SaslError: the library is missing, or there are no credentials.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError:
        raise SaslError("AWS_MSK_IAM needs the extra msk: pip install 'klamm[msk]'") from None
    match = _MSK_HOST.search(host)
    region = match[1] if match else options.get("awsStsRegion") or os.environ.get("AWS_REGION", "")
    if not region:
        raise SaslError("the broker's name contains no AWS region: set AWS_REGION")
    try:
        if role := options.get("awsRoleArn"):
            session = options.get("awsRoleSessionName", "klamm")
            token, _ = MSKAuthTokenProvider.generate_auth_token_from_role_arn(region, role, session)
        elif profile := options.get("awsProfileName"):
            token, _ = MSKAuthTokenProvider.generate_auth_token_from_profile(region, profile)
        else:
            token, _ = MSKAuthTokenProvider.generate_auth_token(region)
    except Exception as error:
        # boto3 has many; none of them may end a command as a bug of klamm's.
        raise SaslError(f"no AWS credentials: {error}") from None
    return str(token)


def extensions_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the SASL extensions (KIP-342) that the login module's options name.

    Raises:
        SaslError: a name or value has characters that RFC 7628 does not allow.
    """
    extensions = {
        key.removeprefix(prefix): value
        for prefix in _EXTENSION_OPTIONS
        for key, value in options.items()
        if key.startswith(prefix)
    }
    for name, value in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise SaslError(f"the SASL extension {name} is malformed")
    return extensions


def unsecured_token(options: Mapping[str, str], *, now_s: float | None = None) -> str:
    """Return a token without signature, with the claims that the login module's options name.

    Raises:
        SaslError: no subject is named, or a number is none.
    """
    # Kafka rounds this time to milliseconds, and its own down: half a millisecond would make a token of the future.
    now = int((time.time() if now_s is None else now_s) * 1000) / 1000
    claims: dict[str, Any] = {}
    try:
        for key, value in options.items():
            if key.startswith(_STRING):
                claims[key.removeprefix(_STRING)] = value
            elif key.startswith(_NUMBER):
                claims[key.removeprefix(_NUMBER)] = float(value)
            elif key.startswith(_LIST):
                # The first character separates the elements if it is no letter or digit, as in Kafka.
                is_plain = not value or value[0].isalnum()
                claims[key.removeprefix(_LIST)] = [value] if is_plain else value[1:].split(value[0])
        lifetime = float(options.get("unsecuredLoginLifetimeSeconds", "3600"))
    except ValueError:
        raise SaslError("an option of the unsecured login is not a number") from None
    if not claims.get(options.get("unsecuredLoginPrincipalClaimName", "sub")):
        raise SaslError("the unsecured login names no subject: give unsecuredLoginStringClaim_sub")
    claims = {"iat": now, "exp": now + lifetime} | claims
    return f"{_b64(json.dumps({'alg': 'none'}))}.{_b64(json.dumps(claims))}."


def token_from_file(path: Path) -> str:
    """Return the token in a file. Each login reads it again: other programs renew it.

    Raises:
        SaslError: it cannot be read, or holds no token.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SaslError(f"the token's file {path} cannot be read: {reason}") from None
    return _checked(text.strip(), f"the file {path}")


def token_from_command(command: str) -> str:
    """Return the token that a command prints; its words are split as a shell does, and no shell runs it.

    Raises:
        SaslError: it cannot run, fails, takes too long, or prints no token.
    """
    try:
        words = shlex.split(command)
        done = subprocess.run(words, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except (OSError, ValueError, IndexError) as error:
        raise SaslError(f"the command for the token cannot run: {getattr(error, 'strerror', None) or error}") from None
    except subprocess.TimeoutExpired:
        raise SaslError(f"the command for the token did not end within {FETCH_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise SaslError(f"the command for the token ended with {done.returncode}")
    return _checked(done.stdout.strip(), "the command for the token")


def token_from_provider(url: str, client_id: str, client_secret: str, scope: str | None, *, ssl: Any = None) -> str:
    """Ask an identity provider for a token by client credentials (RFC 6749, 4.4).

    Raises:
        SaslError: it cannot be reached, refuses, or answers without a token.
    """
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    credentials = b64encode(f"{client_id}:{client_secret}".encode()).decode()
    headers = {"Authorization": f"Basic {credentials}", "Accept": "application/json"}
    request = Request(url, urlencode(form).encode(), headers)
    try:
        with urlopen(request, timeout=FETCH_TIMEOUT_S, context=ssl) as answer:
            document = json.loads(answer.read(1 << 20))
    except HTTPError as error:
        detail = _oauth_error(error)
        raise SaslError(f"the token endpoint {_shown(url)} refuses with {error.code}{detail}") from None
    except OSError as error:
        cause = getattr(error, "reason", None) or error
        reason = getattr(cause, "strerror", None) or cause
        raise SaslError(f"the token endpoint {_shown(url)} cannot be reached: {reason}") from None
    except ValueError:
        raise SaslError(f"the token endpoint {_shown(url)} answers without JSON") from None
    token = document.get("access_token") if isinstance(document, dict) else None
    return _checked(token if isinstance(token, str) else "", f"the answer of {_shown(url)}")


def expires_at_s(token: str) -> float | None:
    """Return when a token expires, in seconds since 1970; None if it does not say so, as opaque tokens do not."""
    try:
        return float(_claims(token)["exp"])
    except (KeyError, TypeError, ValueError):
        return None


def subject_of_token(token: str) -> str | None:
    """Return the subject of a token, by the claim that brokers read by default; None if it has none."""
    subject = _claims(token).get("sub")
    return subject.strip() or None if isinstance(subject, str) else None


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a JWT, not checked; none if it is something else."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _oauth_error(error: IO[bytes]) -> str:
    try:
        with error:
            document = json.loads(error.read(65_536))
        return f" ({document['error']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _shown(url: str) -> str:
    """Return an address without credentials and without its query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _checked(token: str, origin: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise SaslError(f"{origin} holds no token")
    return token


def _status(challenge: bytes) -> str:
    try:
        return str(json.loads(challenge)["status"])
    except (ValueError, KeyError, TypeError):
        return "no reason given"


def _b64(text: str) -> str:
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
