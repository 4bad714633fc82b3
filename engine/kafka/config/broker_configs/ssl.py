"""Settings of TLS."""

from __future__ import annotations

from engine.kafka.config.definition import BOOLEAN, CLASS, LIST, LOW, MEDIUM, PASSWORD, PER_BROKER, STRING
from engine.kafka.config.validators import OneOf


class TlsKeys:
    """TLS"""

    ssl_keystore_location = STRING(None, MEDIUM, dynamic=PER_BROKER).with_effect(
        "File with the broker's key and certificate."
    )
    ssl_keystore_password = PASSWORD(None, MEDIUM, dynamic=PER_BROKER).with_effect(
        "Password of the key store; not used for PEM."
    )
    ssl_keystore_type = STRING("JKS", MEDIUM, dynamic=PER_BROKER).with_effect(
        "Format of the key store: JKS, PKCS12 or PEM."
    )
    ssl_keystore_key = PASSWORD(None, MEDIUM, dynamic=PER_BROKER).with_effect(
        "Private key itself, as PEM, instead of a file."
    )
    ssl_keystore_certificate_chain = PASSWORD(None, MEDIUM, dynamic=PER_BROKER).with_effect(
        "Certificate chain itself, as PEM, instead of a file."
    )
    ssl_key_password = PASSWORD(None, MEDIUM, dynamic=PER_BROKER).with_effect("Password of the private key.")
    ssl_truststore_location = STRING(None, MEDIUM, dynamic=PER_BROKER).with_effect(
        "File with the certificates that peers are checked against."
    )
    ssl_truststore_password = PASSWORD(None, MEDIUM, dynamic=PER_BROKER).with_effect(
        "Password of the trust store; without it the file's integrity is not checked."
    )
    ssl_truststore_type = STRING("JKS", MEDIUM, dynamic=PER_BROKER).with_effect(
        "Format of the trust store: JKS, PKCS12 or PEM."
    )
    ssl_truststore_certificates = PASSWORD(None, MEDIUM, dynamic=PER_BROKER).with_effect(
        "Trusted certificates themselves, as PEM, instead of a file."
    )
    ssl_client_auth = STRING("none", MEDIUM, OneOf(("required", "requested", "none")), PER_BROKER).with_effect(
        "Whether clients must (`required`), may (`requested`) or need not (`none`) show a certificate."
    )
    ssl_protocol = STRING("TLSv1.3", MEDIUM, dynamic=PER_BROKER).without_effect("TLS version to prefer.")
    ssl_enabled_protocols = LIST(("TLSv1.2", "TLSv1.3"), MEDIUM, dynamic=PER_BROKER).with_effect(
        "TLS versions that are allowed."
    )
    ssl_cipher_suites = LIST((), MEDIUM, dynamic=PER_BROKER).with_effect(
        "Cipher suites of TLS 1.2 that are allowed, by Java's names or OpenSSL's; empty: all that the platform offers. "
        "Those of TLS 1.3 cannot be chosen: if the list has none of 1.2, only 1.3 is spoken."
    )
    ssl_endpoint_identification_algorithm = STRING("https", LOW, dynamic=PER_BROKER).with_effect(
        "`https` checks that the peer's certificate names its host; empty does not."
    )
    ssl_principal_mapping_rules = STRING("DEFAULT", LOW).with_effect(
        "Rules that turn a certificate's name into a principal, tried in order."
    )
    ssl_provider = STRING(None, MEDIUM, dynamic=PER_BROKER).without_effect("Java security provider for TLS.")
    ssl_engine_factory_class = CLASS(None, LOW, dynamic=PER_BROKER).without_effect("Java class that makes TLS engines.")
    ssl_secure_random_implementation = STRING(None, LOW, dynamic=PER_BROKER).without_effect(
        "Java source of random numbers for TLS."
    )
    ssl_keymanager_algorithm = STRING("SunX509", MEDIUM, dynamic=PER_BROKER).without_effect(
        "Java algorithm of the key manager."
    )
    ssl_trustmanager_algorithm = STRING("PKIX", MEDIUM, dynamic=PER_BROKER).without_effect(
        "Java algorithm of the trust manager."
    )
    ssl_allow_dn_changes = BOOLEAN(False, LOW).with_effect(
        "Let a new certificate have another name when it is changed at run time."
    )
    ssl_allow_san_changes = BOOLEAN(False, LOW).with_effect(
        "Let a new certificate have other alternative names when it is changed at run time."
    )
