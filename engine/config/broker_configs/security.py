"""Settings of authorization, principals, delegation tokens and the storage of secrets."""

from __future__ import annotations

from engine.config.definition import ConfigKey
from engine.config.validators import NonNull, at_least
from engine.config.vocabulary import CLASS, INT, LONG, LOW, MEDIUM, PASSWORD, PER_BROKER, STRING

KEYS = (
    ConfigKey(
        "authorizer.class.name",
        STRING,
        "",
        LOW,
        "Java class that decides who may do what; empty: everybody may do everything. klamm has no authorizer and "
        "refuses to start with one named.",
        NonNull(),
        has_effect=True,
    ),
    ConfigKey(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        MEDIUM,
        "Java class that names a client after its connection.",
        dynamic=PER_BROKER,
    ),
    ConfigKey(
        "security.providers",
        STRING,
        None,
        LOW,
        "Java classes that bring further security algorithms.",
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        LONG,
        0,
        MEDIUM,
        "Milliseconds after which a client must authenticate anew; 0: never (KIP-368).",
    ),
    ConfigKey(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        MEDIUM,
        ("Secret that delegation tokens are made and checked with; the same on all brokers. Not set: no tokens."),
    ),
    ConfigKey(
        "delegation.token.master.key",
        PASSWORD,
        None,
        MEDIUM,
        "Deprecated name of `delegation.token.secret.key`.",
    ),
    ConfigKey(
        "delegation.token.max.lifetime.ms",
        LONG,
        604_800_000,
        MEDIUM,
        "Milliseconds after which a token cannot be renewed any more.",
        at_least(1),
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        LONG,
        86_400_000,
        MEDIUM,
        "Milliseconds for which a token is valid until it is renewed.",
        at_least(1),
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        3_600_000,
        LOW,
        "Milliseconds between two looks for expired tokens.",
        at_least(1),
    ),
    ConfigKey(
        "password.encoder.secret",
        PASSWORD,
        None,
        MEDIUM,
        "Secret that encrypts passwords among the settings in ZooKeeper.",
    ),
    ConfigKey(
        "password.encoder.old.secret",
        PASSWORD,
        None,
        MEDIUM,
        "Former value of `password.encoder.secret`, needed for one restart while it is changed.",
    ),
    ConfigKey(
        "password.encoder.keyfactory.algorithm",
        STRING,
        None,
        LOW,
        "Java algorithm that makes a key from the secret; not set: the best the platform has.",
    ),
    ConfigKey(
        "password.encoder.cipher.algorithm",
        STRING,
        "AES/CBC/PKCS5Padding",
        LOW,
        "Java cipher that encrypts passwords.",
    ),
    ConfigKey(
        "password.encoder.key.length",
        INT,
        128,
        LOW,
        "Bits of the key that encrypts passwords.",
        at_least(8),
    ),
    ConfigKey(
        "password.encoder.iterations",
        INT,
        4096,
        LOW,
        "Rounds that make a key from the secret.",
        at_least(1024),
    ),
)
