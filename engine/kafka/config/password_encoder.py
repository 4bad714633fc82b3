"""Encrypts the passwords among a broker's settings in ZooKeeper, and reads them again (KIP-226).

A stored password says how it was made, so that a broker reads it whatever its own parameters are; only the secret has
to be the same. Source: EncryptingPasswordEncoder of Kafka 3.9. Needs ``cryptography``.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from engine.common.errors import ConfigError
from engine.kafka.config.broker_configs import BrokerKeys
from engine.kafka.config.dynamic_keys import is_password

_CIPHERS: Final = ("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding")
_KEY_BITS: Final = (128, 192, 256)
_BLOCK_BYTES: Final = 16
_GCM_IV_BYTES: Final = 12
_GCM_TAG_BITS: Final = 128
_SALT_BYTES: Final = 256
_PBKDF2: Final = "PBKDF2WithHmacSHA"
_DEFAULT_FACTORY: Final = f"{_PBKDF2}512"
_LONGEST_ROUNDS: Final = 10_000_000
"""A few seconds of one core: more can only be meant to keep a broker busy."""


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """The ``password.encoder.*`` settings of a broker.

    Attributes:
        key_factory_algorithm: Java's name of what makes a key of the secret.
        cipher_algorithm: Java's name of a cipher, its mode and its padding.
    """

    secret: str
    key_factory_algorithm: str = _DEFAULT_FACTORY
    cipher_algorithm: str = "AES/CBC/PKCS5Padding"
    key_length_bits: int = 128
    iterations: int = 4096

    def __repr__(self) -> str:
        return "PasswordEncoder(…)"

    @classmethod
    def of(cls, config: BrokerKeys, *, is_old: bool = False) -> PasswordEncoder | None:
        """Return the encoder of a broker, with its former secret if ``is_old``; None if that is not set."""
        secret = config.password_encoder_old_secret if is_old else config.password_encoder_secret
        if secret is None:
            return None
        return cls(
            secret.secret,
            config.password_encoder_keyfactory_algorithm or _DEFAULT_FACTORY,
            config.password_encoder_cipher_algorithm,
            config.password_encoder_key_length,
            config.password_encoder_iterations,
        )

    def encode(self, password: str) -> str:
        """Return what to store. Takes some milliseconds, so not on an event loop.

        Raises:
            ConfigError: the parameters name what klamm does not know, or ``cryptography`` is missing.
        """
        if self.key_length_bits not in _KEY_BITS:
            raise ConfigError(
                f"AES has no key of {self.key_length_bits} bits: use 128, 192 or 256", key="password.encoder.key.length"
            )
        mode, salt = _mode(self.cipher_algorithm), os.urandom(_SALT_BYTES)
        iv = os.urandom(_GCM_IV_BYTES if mode == "GCM" else _BLOCK_BYTES)
        key = _key(self.secret, self.key_factory_algorithm, self.key_length_bits, salt, self.iterations)
        fields: dict[str, str | int] = {
            "keyFactoryAlgorithm": self.key_factory_algorithm,
            "cipherAlgorithm": self.cipher_algorithm,
            "keyLength": self.key_length_bits,
            "salt": b64encode(salt).decode(),
            "iterations": self.iterations,
            "encryptedPassword": b64encode(_crypted(mode, key, iv, password.encode())).decode(),
            "passwordLength": _java_length(password),
            "initializationVector": b64encode(iv).decode(),
        }
        if mode == "GCM":
            fields["authenticationTagLength"] = _GCM_TAG_BITS
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Return the password of a stored text. Takes some milliseconds, so not on an event loop.

        Raises:
            ConfigError: the secret is another one, or the text is no encrypted password.
        """
        try:
            fields = dict(field.strip().rsplit(":", 1) for field in text.split(","))
            mode = _mode(fields["cipherAlgorithm"])
            key = _key(
                self.secret,
                fields.get("keyFactoryAlgorithm", self.key_factory_algorithm),
                int(fields["keyLength"]),
                b64decode(fields["salt"], validate=True),
                int(fields["iterations"]),
            )
            iv = b64decode(fields["initializationVector"], validate=True)
            encrypted = b64decode(fields["encryptedPassword"], validate=True)
            password = _crypted(mode, key, iv, encrypted, is_decryption=True).decode()
            if _java_length(password) != int(fields["passwordLength"]):
                raise ValueError("it has another length")
        except KeyError as error:
            raise ConfigError(f"the password is not encrypted as Kafka does it: {error} is missing") from error
        except ValueError as error:
            # The library's message about a wrong key would not help.
            raise ConfigError("the password was encrypted with another password.encoder.secret") from error
        return password


def decoded(texts: Mapping[str, str], encoder: PasswordEncoder | None) -> tuple[dict[str, str], list[str]]:
    """Decode the passwords among a broker's stored settings; those that cannot be decoded are left out.

    The second part says why, a sentence each.
    """
    clear, problems = dict(texts), []
    for name in filter(is_password, texts):
        try:
            clear[name] = _checked(encoder).decode(texts[name])
        except ConfigError as error:
            del clear[name]
            problems.append(f"{name} is ignored: {error}")
    return clear, problems


def encoded(
    clear: Mapping[str, str], encoder: PasswordEncoder | None, stored: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return settings as they are to be stored. A password that is also in ``stored`` keeps its text.

    Raises:
        ConfigError: there is a password and no encoder, or as ``PasswordEncoder.encode``.
    """
    unchanged, _ = decoded({name: text for name, text in (stored or {}).items() if is_password(name)}, encoder)
    return {
        name: value
        if not is_password(name)
        else (stored or {})[name]
        if unchanged.get(name) == value
        else _checked(encoder).encode(value)
        for name, value in clear.items()
    }


def encoded_anew(texts: Mapping[str, str], old: PasswordEncoder, new: PasswordEncoder | None) -> dict[str, str]:
    """Return stored settings with the passwords that ``old`` can read encrypted by ``new``.

    Raises:
        ConfigError: as ``encoded``.
    """
    readable, _ = decoded({name: text for name, text in texts.items() if is_password(name)}, old)
    return {**texts, **encoded(readable, new)}


def _checked(encoder: PasswordEncoder | None) -> PasswordEncoder:
    if encoder is None:
        raise ConfigError("Password encoder secret not configured", key="password.encoder.secret")
    return encoder


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _mode(cipher: str) -> str:
    if cipher not in _CIPHERS:
        raise ConfigError(
            f"klamm does not know the cipher {cipher}: use {' or '.join(_CIPHERS)}",
            key="password.encoder.cipher.algorithm",
        )
    return cipher.split("/")[1]


@lru_cache(maxsize=64)
def _key(secret: str, factory: str, length_bits: int, salt: bytes, iterations: int) -> bytes:
    digest = f"sha{factory.removeprefix(_PBKDF2)}"
    if not factory.startswith(_PBKDF2) or digest not in ("sha1", "sha224", "sha256", "sha384", "sha512"):
        raise ConfigError(
            f"klamm does not know the key factory {factory}: use {_PBKDF2}512 or another of PBKDF2",
            key="password.encoder.keyfactory.algorithm",
        )
    if iterations > _LONGEST_ROUNDS:
        raise ConfigError(f"{iterations:,} rounds for one password", key="password.encoder.iterations")
    return hashlib.pbkdf2_hmac(digest, secret.encode(), salt, iterations, length_bits // 8)


def _crypted(mode: str, key: bytes, iv: bytes, content: bytes, *, is_decryption: bool = False) -> bytes:
    """Raise ValueError if the content was encrypted with another key."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import CBC
        from cryptography.hazmat.primitives.padding import PKCS7
    except ImportError:
        raise ConfigError(
            "passwords in ZooKeeper need the package cryptography: pip install 'klamm[security]'"
        ) from None
    if mode == "GCM":
        try:
            return (AESGCM(key).decrypt if is_decryption else AESGCM(key).encrypt)(iv, content, None)
        except InvalidTag as error:
            raise ValueError("another key") from error
    cipher, padding = Cipher(AES(key), CBC(iv)), PKCS7(8 * _BLOCK_BYTES)
    if is_decryption:
        decryptor, unpadder = cipher.decryptor(), padding.unpadder()
        return unpadder.update(decryptor.update(content) + decryptor.finalize()) + unpadder.finalize()
    encryptor, padder = cipher.encryptor(), padding.padder()
    return encryptor.update(padder.update(content) + padder.finalize()) + encryptor.finalize()
