"""OAUTHBEARER tokens with a signature (KIP-768): the keys of an identity provider, and what a token must claim.

PyJWT checks signatures, audience and issuer; the rest follows Kafka's ``OAuthBearerValidatorCallbackHandler`` and the
jose4j below it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from engine.broker.security.sasl_mechanisms import LoggedIn, LoginRefused, name_in, seconds
from engine.common.errors import ConfigError
from engine.kafka.client.sasl.oauthbearer import FETCH_TIMEOUT_S
from engine.kafka.client.tls.context import client_context, tls_settings
from engine.kafka.config.broker import BrokerConfig
from engine.runtime.supervisor import Supervisor

VALIDATORS: Final = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerValidatorCallbackHandler"
    for package in ("", "secured.")
)
"""Java classes that this does the work of."""
URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
DOCUMENT_BYTES_MAX: Final = 1 << 20
RSA_BITS_MIN: Final = 2048
UNKNOWN_KEY_INTERVAL_MS: Final = 10_000
"""Keys are fetched sooner than their time if a token names an unknown one, but not more often than this."""

_PUBLIC = ("kty", "n", "e", "crv", "x", "y", "kid", "use", "alg")
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_ALGORITHMS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms of a key by its type and curve. A secret that every client may read is none."""

# What is not about the signature, the audience or the issuer follows Kafka, by the broker's clock.
_OPTIONS: Final[Any] = {
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_sub", "verify_jti"), False),
    "require": ["exp", "iat"],
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key that tokens may be signed with."""

    key_id: str | None
    algorithms: tuple[str, ...]
    public: Any


class SigningKeys:
    """The keys at an address, from ``start`` on."""

    def __init__(self, config: BrokerConfig, options: Mapping[str, str]) -> None:
        """Raises ConfigError: the address is missing or malformed, or PyJWT is. ``options`` are the login module's."""
        self._url = (config.sasl_oauthbearer_jwks_endpoint_url or "").strip()
        if not self._url:
            raise ConfigError(f"{URL} is missing: it says where the keys are that tokens are checked with", key=URL)
        parts = urlsplit(self._url)
        if parts.scheme not in ("file", "http", "https") or not (
            parts.path if parts.scheme == "file" else parts.netloc
        ):
            raise ConfigError(f"{URL}={self._shown} is not an address: it begins with https:, http: or file:", key=URL)
        try:
            import jwt  # noqa: F401
        except ImportError:
            raise ConfigError(f"{URL} needs the extra security: pip install 'klamm[security]'", key=URL) from None
        self._file = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._ssl = client_context(tls_settings(options)) if parts.scheme == "https" else None
        self._refresh_ms = config.sasl_oauthbearer_jwks_endpoint_refresh_ms
        if self._refresh_ms < 1:
            name = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
            raise ConfigError(f"{name}={self._refresh_ms} is not a number of milliseconds to wait", key=name)
        self._backoff_ms = max(1, config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms)
        self._backoff_max_ms = max(1, config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms)
        self._keys: tuple[SigningKey, ...] = ()
        self._is_wanted = asyncio.Event()
        self._supervisor = Supervisor("signing keys")

    async def start(self) -> None:
        """Read the keys, and keep reading those of a server, because they change.

        Raises:
            ConfigError: they cannot be read, or there is none to use.
        """
        try:
            self._keys = await asyncio.to_thread(self._read)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{URL}={self._shown}: {_reason(error)}", key=URL) from None
        if self._file is None:
            self._supervisor.start(self._refresh(), "refresh")

    async def stop(self) -> None:
        """Keep the keys as they are."""
        await self._supervisor.stop()

    def key_of(self, header: Mapping[str, Any]) -> SigningKey | None:
        """Return the key that a token's header means; None if there is none (yet: an unknown one is looked for)."""
        name, algorithm = header.get("kid"), header.get("alg")
        for key in self._keys:
            if (name is None or key.key_id == name) and algorithm in key.algorithms:
                return key
        self._is_wanted.set()
        return None

    async def _refresh(self) -> None:
        backoff_ms = self._backoff_ms
        while True:
            try:
                async with asyncio.timeout(self._refresh_ms / 1000):
                    await asyncio.sleep(UNKNOWN_KEY_INTERVAL_MS / 1000)
                    await self._is_wanted.wait()
            except TimeoutError:
                logger.debug("It is time to read %s again", self._shown)
            self._is_wanted.clear()
            while True:
                try:
                    self._keys = await asyncio.to_thread(self._read)
                    break
                except (OSError, ValueError) as error:
                    logger.warning("The keys of tokens stay as they are: %s: %s", self._shown, _reason(error))
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, self._backoff_max_ms)
            backoff_ms = self._backoff_ms

    def _read(self) -> tuple[SigningKey, ...]:
        from urllib.request import urlopen

        if self._file is not None:
            with self._file.open("rb") as file:
                data = file.read(DOCUMENT_BYTES_MAX)
        else:
            with urlopen(self._url, timeout=FETCH_TIMEOUT_S, context=self._ssl) as answer:
                data = answer.read(DOCUMENT_BYTES_MAX)
        keys = signing_keys(data)
        if not keys:
            raise ValueError("it has no public key that tokens could be signed with")
        return keys

    @property
    def _shown(self) -> str:
        """The address without the credentials in it, and without its query."""
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def signing_keys(document: bytes) -> tuple[SigningKey, ...]:
    """Return the keys of a JSON Web Key Set (RFC 7517) that can check signatures; leave out all others.

    Raises:
        ValueError: it is no key set.
    """
    try:
        entries = json.loads(document)["keys"]
        return tuple(filter(None, (_signing_key(entry) for entry in entries)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("it is not a JSON Web Key Set") from None


def _signing_key(entry: Mapping[str, Any]) -> SigningKey | None:
    import jwt

    algorithms = _ALGORITHMS.get((entry["kty"], entry.get("crv", "")), ())
    named = entry.get("alg")
    if named is not None:
        algorithms = tuple(each for each in algorithms if each == named)
    if not algorithms or entry.get("use") not in (None, "sig"):
        return None
    try:
        public = jwt.PyJWK({name: entry[name] for name in _PUBLIC if name in entry}, algorithms[0]).key
    except jwt.PyJWTError as error:
        logger.warning("A key of tokens is malformed: kid=%s: %s", entry.get("kid"), error)
        return None
    if entry["kty"] == "RSA" and public.key_size < RSA_BITS_MIN:
        logger.warning("A key of tokens has fewer than %d bits: kid=%s", RSA_BITS_MIN, entry.get("kid"))
        return None
    return SigningKey(entry.get("kid"), algorithms, public)


def signed_validator(config: BrokerConfig, keys: SigningKeys, now_ms: Callable[[], int]) -> Callable[[str], LoggedIn]:
    """Return what checks tokens: their signature, times, audience, issuer, subject and scope."""
    audiences = config.sasl_oauthbearer_expected_audience or None
    issuer = (config.sasl_oauthbearer_expected_issuer or "").strip() or None
    scope_claim, name_claim = config.sasl_oauthbearer_scope_claim_name, config.sasl_oauthbearer_sub_claim_name
    skew_ms = config.sasl_oauthbearer_clock_skew_seconds * 1000

    def validate(token: str) -> LoggedIn:
        claims = _proven_claims(token, keys, audiences, issuer)
        expires_ms, issued_ms = (int(seconds(claims.get(name)) * 1000) for name in ("exp", "iat"))
        starts_ms = int(seconds(claims.get("nbf", 0)) * 1000)
        if now_ms() - skew_ms >= expires_ms or now_ms() + skew_ms < starts_ms:
            raise LoginRefused("the token has expired, or is not valid yet")
        if issued_ms < 0 or max(issued_ms, starts_ms) > expires_ms:
            raise LoginRefused("the token's times contradict each other")
        name = name_in(claims, name_claim)
        _check_scope(claims.get(scope_claim))
        return LoggedIn(name.strip(), expires_at_ms=expires_ms)

    return validate


def _proven_claims(
    token: str, keys: SigningKeys, audiences: list[str] | tuple[str, ...] | None, issuer: str | None
) -> Mapping[str, Any]:
    import jwt

    try:
        key = keys.key_of(jwt.get_unverified_header(token))
        if key is None:
            raise LoginRefused("the token is signed with an unknown key")
        claims: Mapping[str, Any] = jwt.decode(
            token, key.public, list(key.algorithms), _OPTIONS,
            audience=audiences and list(audiences), issuer=issuer,
        )  # fmt: skip
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise LoginRefused(f"the token is not valid: {error}") from None
    return claims


def _check_scope(scope: object) -> None:
    """Refuse a scope that Kafka cannot read; it asks for none itself."""
    given = [scope] if isinstance(scope, str) else scope if isinstance(scope, list) else []
    if not all(isinstance(each, str) and each.strip() for each in given) or len({*given}) < len(given):
        raise LoginRefused("the token's scope is malformed")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(getattr(error, "reason", None) or error.strerror or error)
    return str(error)
