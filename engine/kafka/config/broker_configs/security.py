"""Settings of authorization, principals, delegation tokens and the storage of secrets."""

from __future__ import annotations

from engine.kafka.config.definition import CLASS, INT, LONG, LOW, MEDIUM, PASSWORD, PER_BROKER, STRING
from engine.kafka.config.validators import NonNull, at_least


class SecurityKeys:
    """Security"""

    authorizer_class_name = STRING("", LOW, NonNull()).with_effect(
        "Java class that decides who may do what; empty: everybody may do everything. klamm does the work of "
        "`kafka.security.authorizer.AclAuthorizer`, with `super.users` and `allow.everyone.if.no.acl.found`, and "
        "refuses to start with another."
    )
    principal_builder_class = CLASS(
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", MEDIUM, dynamic=PER_BROKER
    ).with_effect(
        "Java class that names a client after its connection. klamm cannot run one, and with secured listeners refuses "
        "to start with another than Kafka's own."
    )
    security_providers = STRING(None, LOW).without_effect("Java classes that provide further security algorithms.")
    connections_max_reauth_ms = LONG(0, MEDIUM).with_effect(
        "Milliseconds after which a client must authenticate again; 0: never (KIP-368)."
    )
    delegation_token_secret_key = PASSWORD(None, MEDIUM).with_effect(
        "Secret that delegation tokens are made and checked with; the same on all brokers. Not set: no tokens."
    )
    delegation_token_master_key = PASSWORD(None, MEDIUM).with_effect(
        "Deprecated name of `delegation.token.secret.key`."
    )
    delegation_token_max_lifetime_ms = LONG(604_800_000, MEDIUM, at_least(1)).with_effect(
        "Milliseconds after which a token cannot be renewed any more."
    )
    delegation_token_expiry_time_ms = LONG(86_400_000, MEDIUM, at_least(1)).with_effect(
        "Milliseconds for which a token is valid until it is renewed."
    )
    delegation_token_expiry_check_interval_ms = LONG(3_600_000, LOW, at_least(1)).with_effect(
        "Milliseconds between checks for expired tokens."
    )
    password_encoder_secret = PASSWORD(None, MEDIUM).with_effect(
        "Secret that encrypts passwords among the settings in ZooKeeper."
    )
    password_encoder_old_secret = PASSWORD(None, MEDIUM).with_effect(
        "Former value of `password.encoder.secret`, needed for one restart while it is changed."
    )
    password_encoder_keyfactory_algorithm = STRING(None, LOW).with_effect(
        "Java algorithm that makes a key from the secret, one of `PBKDF2WithHmacSHA…`; not set: `PBKDF2WithHmacSHA512`."
    )
    password_encoder_cipher_algorithm = STRING("AES/CBC/PKCS5Padding", LOW).with_effect(
        "Java cipher that encrypts passwords: `AES/CBC/PKCS5Padding` or `AES/GCM/NoPadding`."
    )
    password_encoder_key_length = INT(128, LOW, at_least(8)).with_effect("Bits of the key that encrypts passwords.")
    password_encoder_iterations = INT(4096, LOW, at_least(1024)).with_effect("Rounds that make a key from the secret.")
