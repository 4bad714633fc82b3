"""An identity provider: its keys, its tokens, and other people's."""

from __future__ import annotations

import json
import time
import warnings
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

NOW = 1_700_000_000
CLIENT_ID, CLIENT_SECRET = "service", "cl1ent-Secr3t"
"""Who may ask the token endpoint, with the scope kafka."""

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK_KEY = rsa.generate_private_key(public_exponent=65537, key_size=1024)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwk(key: Any, **fields: Any) -> dict[str, Any]:
    algorithm: Any = jwt.algorithms.RSAAlgorithm
    if isinstance(key, ec.EllipticCurvePrivateKey):
        algorithm = jwt.algorithms.ECAlgorithm
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        algorithm = jwt.algorithms.OKPAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), **fields}


def key_set(*entries: dict[str, Any]) -> str:
    return json.dumps({"keys": entries})


KEYS = key_set(
    jwk(RSA_KEY, kid="rsa"), jwk(EC_KEY, kid="ec"), jwk(ED_KEY, kid="ed"), jwk(WEAK_KEY, kid="weak"),
    {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXM", "kid": "shared"},
    jwk(OTHER_KEY, kid="for-encryption", use="enc"),
)  # fmt: skip
CLAIMS = {"sub": "alice", "iat": -100, "exp": 60, "scope": "kafka", "iss": "https://idp", "aud": "brokers"}


def token(key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "rsa", now: int = NOW, **claims: Any) -> str:
    """Return a token with these claims; None leaves a claim out, and times are seconds from now."""
    said = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    said |= {name: now + said[name] for name in ("iat", "exp", "nbf") if type(said.get(name)) is int}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jwt.InsecureKeyLengthWarning)
        return jwt.encode(said, key, algorithm, {"kid": kid} if kid else {})


def good_tokens(now: int = NOW) -> dict[str, str]:
    """Return tokens by whom they let in, and by what is special about them."""
    return {
        "alice": token(now=now),
        "alice, no key named": token(kid=None, now=now),
        "alice, PSS": token(algorithm="PS512", now=now),
        "alice, EC": token(EC_KEY, "ES256", "ec", now=now),
        "alice, EC, no key named": token(EC_KEY, "ES256", None, now=now),
        "alice, expired within the skew": token(exp=-20, now=now),
        "alice, begins within the skew": token(nbf=20, now=now),
        "alice, issued later": token(iat=50, now=now),
        "bob, no scope": token(scope=None, sub=" bob ", now=now),
        "alice, scopes": token(scope=["a", "b"], now=now),
        "alice, audiences": token(aud=["x", "other"], now=now),
    }


def bad_tokens(now: int = NOW) -> dict[str, str]:
    """Return tokens that let nobody in, by what is wrong with them."""
    good = token(now=now)
    header, _, _ = good.split(".")
    forged = token(b"x" * 32, "HS256", "rsa", now=now)
    return {
        "another's key": token(OTHER_KEY, now=now),
        "unknown key": token(kid="unknown", now=now),
        "weak key": token(WEAK_KEY, kid="weak", now=now),
        "key for encryption": token(OTHER_KEY, kid="for-encryption", now=now),
        "key of another type": token(EC_KEY, "ES256", now=now),
        "no signature": token(None, "none", now=now),
        "no signature, no key named": token(None, "none", None, now=now),
        "cut": good[:-4],
        "longer": good + "AAAA",
        "two parts": good.replace(".", "", 1),
        "expired": token(exp=-40, now=now),
        "not yet": token(nbf=40, exp=90, now=now),
        "never expires": token(exp=None, now=now),
        "no time of issue": token(iat=None, now=now),
        "issued after its end": token(iat=61, now=now),
        "issued before all time": token(iat=-now - 1, now=now),
        "end is a text": token(exp="soon", now=now),
        "end is a truth": token(exp=True, now=now),
        "no subject": token(sub=None, now=now),
        "blank subject": token(sub=" ", now=now),
        "two subjects": token(sub=["alice"], now=now),
        "scope twice": token(scope=["a", "a"], now=now),
        "blank scope": token(scope=" ", now=now),
        "another issuer": token(iss="https://idp/", now=now),
        "no issuer": token(iss=None, now=now),
        "another audience": token(aud="Brokers", now=now),
        "no audience": token(aud=None, now=now),
        # The classic confusion of algorithms: a public key is no shared secret.
        "signed with a public key": forged,
        "another algorithm's header": ".".join([header, *forged.split(".")[1:]]),
        "no parts": "a",
        "three letters": "a.b.c",
        "empty claims": "e30.e30.",
    }


class Issuer:
    """The token endpoint: it gives tokens with ``claims`` for client credentials, and keeps what it has given."""

    def __init__(self, host: str, port: int) -> None:
        self.claims: dict[str, Any] = {}
        self.given: list[str] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                basic = b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
                error = None
                if self.headers["Authorization"] != f"Basic {basic}":
                    error = 401, "invalid_client"
                elif sorted(form.split("&")) != ["grant_type=client_credentials", "scope=kafka"]:
                    error = (
                        400,
                        "invalid_scope" if "grant_type=client_credentials" in form else "unsupported_grant_type",
                    )
                else:
                    issuer.given.append(token(now=int(time.time()), **issuer.claims))
                said = {"error": error[1]} if error else {"access_token": issuer.given[-1], "token_type": "Bearer"}
                self.send_response(error[0] if error else 200)
                self.end_headers()
                self.wfile.write(json.dumps(said).encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer((host, port), Handler)
        self.url = f"http://{host}:{port}/token"
