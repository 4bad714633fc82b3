"""Settings of authentication by SASL."""

from __future__ import annotations

from engine.kafka.config.definition import (
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
)


class SaslKeys:
    """SASL"""

    sasl_enabled_mechanisms = LIST(("GSSAPI",), MEDIUM, dynamic=PER_BROKER).with_effect(
        "Mechanisms that clients may authenticate with: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI "
        "(with the extra `kerberos`)."
    )
    sasl_mechanism_inter_broker_protocol = STRING("GSSAPI", MEDIUM, dynamic=PER_BROKER).with_effect(
        "Mechanism by which brokers authenticate to each other."
    )
    sasl_mechanism_controller_protocol = STRING("GSSAPI", HIGH).without_effect(
        "Mechanism by which brokers authenticate to a KRaft controller."
    )
    sasl_jaas_config = PASSWORD(None, MEDIUM, dynamic=PER_BROKER).with_effect(
        "Login modules in JAAS notation; per listener and mechanism with the prefix "
        "`listener.name.<name>.<mechanism>.`."
    )
    sasl_client_callback_handler_class = CLASS(None, MEDIUM).without_effect(
        "Java class that provides a client's credentials."
    )
    sasl_server_callback_handler_class = CLASS(None, MEDIUM).with_effect(
        "Java class that checks credentials on the broker. klamm cannot run one and refuses to start with another than "
        "Kafka's own."
    )
    sasl_login_class = CLASS(None, MEDIUM).without_effect("Java class that logs a broker in.")
    sasl_login_callback_handler_class = CLASS(None, MEDIUM).without_effect(
        "Java class that provides credentials for the login."
    )
    sasl_server_max_receive_size = INT(524_288, MEDIUM).with_effect(
        "Largest SASL packet, in bytes, that is read before a client is authenticated."
    )
    sasl_kerberos_service_name = STRING(None, MEDIUM, dynamic=PER_BROKER).with_effect(
        "Kerberos principal name that brokers run as."
    )
    sasl_kerberos_kinit_cmd = STRING("/usr/bin/kinit", MEDIUM, dynamic=PER_BROKER).without_effect(
        "Path of the command `kinit`."
    )
    sasl_kerberos_ticket_renew_window_factor = DOUBLE(0.8, MEDIUM, dynamic=PER_BROKER).without_effect(
        "Share of a ticket's life after which it is renewed."
    )
    sasl_kerberos_ticket_renew_jitter = DOUBLE(0.05, MEDIUM, dynamic=PER_BROKER).without_effect(
        "Share of random delay added to the renewal."
    )
    sasl_kerberos_min_time_before_relogin = LONG(60000, MEDIUM, dynamic=PER_BROKER).without_effect(
        "Milliseconds to sleep between two attempts to renew."
    )
    sasl_kerberos_principal_to_local_rules = LIST(("DEFAULT",), MEDIUM, dynamic=PER_BROKER).with_effect(
        "Rules that turn Kerberos principals into short names, tried in order."
    )
    sasl_login_refresh_window_factor = DOUBLE(0.8, MEDIUM, dynamic=PER_BROKER).without_effect(
        "Share of a token's life after which it is renewed (OAUTHBEARER)."
    )
    sasl_login_refresh_window_jitter = DOUBLE(0.05, MEDIUM, dynamic=PER_BROKER).without_effect(
        "Share of random delay added to that renewal."
    )
    sasl_login_refresh_min_period_seconds = SHORT(60, MEDIUM, dynamic=PER_BROKER).without_effect(
        "Seconds that must pass between two renewals."
    )
    sasl_login_refresh_buffer_seconds = SHORT(300, MEDIUM, dynamic=PER_BROKER).without_effect(
        "Seconds before its end by which a token must be renewed."
    )
    sasl_login_connect_timeout_ms = INT(None, LOW).without_effect(
        "Milliseconds to wait for a connection to the token server."
    )
    sasl_login_read_timeout_ms = INT(None, LOW).without_effect("Milliseconds to wait for the token server's answer.")
    sasl_login_retry_backoff_ms = LONG(100, LOW).without_effect(
        "Milliseconds before the first retry of a failed login; it doubles each time."
    )
    sasl_login_retry_backoff_max_ms = LONG(10000, LOW).without_effect(
        "Maximum milliseconds between two retries of a login."
    )
    sasl_oauthbearer_token_endpoint_url = STRING(None, MEDIUM).with_effect("Address of the token server.")
    sasl_oauthbearer_jwks_endpoint_url = STRING(None, MEDIUM).with_effect(
        "Address of the keys that tokens are checked with: a server's (`https:`), or a file's (`file:`), which is read "
        "at start alone."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = LONG(3_600_000, LOW).with_effect(
        "Milliseconds for which those keys are kept."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = LONG(100, LOW).with_effect(
        "Milliseconds before the first retry of fetching keys; it doubles each time."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = LONG(10000, LOW).with_effect(
        "Maximum milliseconds between two retries of fetching keys."
    )
    sasl_oauthbearer_scope_claim_name = STRING("scope", LOW).with_effect("Claim of a token that holds its scope.")
    sasl_oauthbearer_sub_claim_name = STRING("sub", LOW).with_effect("Claim of a token that holds its subject.")
    sasl_oauthbearer_clock_skew_seconds = INT(30, LOW).with_effect(
        "Seconds by which the clocks of broker and token server may differ."
    )
    sasl_oauthbearer_expected_audience = LIST(None, LOW).with_effect("Audiences that a token may be issued for.")
    sasl_oauthbearer_expected_issuer = STRING(None, LOW).with_effect("Issuer that a token must come from.")
