"""Settings of listeners, connections, TLS, SASL, authorization, quotas and metrics."""

from __future__ import annotations

from engine.kafka.config.definition import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
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
from engine.kafka.config.listeners import parse_connection_overrides
from engine.kafka.config.values import INT_MAX, LONG_MAX, NonNull, OneOf, at_least


class NetworkKeys:
    """Network"""

    listeners = STRING("PLAINTEXT://:9092", HIGH, dynamic=PER_BROKER).with_effect(
        "Addresses to listen on, as `NAME://host:port,…`. An empty host or `0.0.0.0` is every address of the machine, "
        "of IPv4 and IPv6. Names that are no security protocols need entries in `listener.security.protocol.map`. At "
        "run time, listeners open and close by name; one that stays keeps its address."
    )
    advertised_listeners = STRING(None, HIGH, dynamic=PER_BROKER).with_effect(
        "Addresses for clients and other brokers, if they differ from `listeners` (NAT, containers, load "
        "balancers). `0.0.0.0` is not allowed."
    )
    listener_security_protocol_map = STRING(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW, dynamic=PER_BROKER
    ).with_effect(
        "The security protocol of each listener name, as `NAME:PROTOCOL,…`. Protocols: PLAINTEXT, SSL, SASL_PLAINTEXT, "
        "SASL_SSL."
    )
    inter_broker_listener_name = STRING(None, MEDIUM).with_effect(
        "Name of the listener that brokers and the controller use among themselves. Do not set together with "
        "`security.inter.broker.protocol`."
    )
    security_inter_broker_protocol = STRING(
        "PLAINTEXT", MEDIUM, OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
    ).with_effect(
        "Security protocol of the listener that brokers use among themselves. Do not set together with "
        "`inter.broker.listener.name`."
    )
    control_plane_listener_name = STRING(None, HIGH).with_effect(
        "Name of the listener at which brokers get the controller's requests; not set: the one that brokers use among "
        "themselves. klamm serves it on the same event loop as the others."
    )
    early_start_listeners = STRING(None, HIGH).without_effect(
        "Names of listeners that may serve before the authorizer is ready."
    )
    socket_send_buffer_bytes = INT(102_400, HIGH).with_effect(
        "SO_SNDBUF of client connections, in bytes; -1 leaves it to the operating system."
    )
    socket_receive_buffer_bytes = INT(102_400, HIGH).with_effect(
        "SO_RCVBUF of client connections, in bytes; -1 leaves it to the operating system. Raise it for distant clients."
    )
    socket_request_max_bytes = INT(104_857_600, HIGH, at_least(1)).with_effect(
        "Largest request that is read, in bytes; a longer one costs its sender the connection."
    )
    socket_listen_backlog_size = INT(50, MEDIUM, at_least(1)).with_effect(
        "Connections the operating system may queue until the broker accepts them. Raise it together with the "
        "kernel's `somaxconn`."
    )
    socket_connection_setup_timeout_ms = LONG(10000, MEDIUM).with_effect(
        "Milliseconds that a connection to another broker may take until it is open, TLS included. Each failure "
        "doubles it, except for followers and the controller."
    )
    socket_connection_setup_timeout_max_ms = LONG(30000, MEDIUM).with_effect(
        "Upper limit, in milliseconds, of that wait when it grows with each failure."
    )
    connections_max_idle_ms = LONG(600_000, MEDIUM).with_effect(
        "Milliseconds after which an idle connection is closed; negative: never."
    )
    connection_failed_authentication_delay_ms = INT(100, LOW, at_least(0)).with_effect(
        "Milliseconds to keep a connection open after failed authentication, to slow guessing down."
    )
    max_connections = INT(INT_MAX, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Maximum connections at one time, over all listeners; with the prefix of a listener, at that listener. Others "
        "wait until one ends. As many brokers can still connect if they have a listener of their own: the client that "
        "has been idle longest is closed."
    )
    max_connections_per_ip = INT(INT_MAX, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Maximum connections at one time from one address; 0 only together with overrides."
    )
    max_connections_per_ip_overrides = (
        STRING("", MEDIUM, dynamic=CLUSTER_WIDE)
        .read_as(parse_connection_overrides)
        .with_effect(
            "Other limits of connections for some addresses, as `host:number,…`; names are looked up when it is read."
        )
    )
    max_connection_creation_rate = INT(INT_MAX, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Maximum new connections a second; with the prefix of a listener, at that listener. Others wait for their turn."
    )
    num_network_threads = INT(3, HIGH, at_least(1), CLUSTER_WIDE).without_effect(
        "Threads that read and write sockets in Kafka. klamm serves all connections from one event loop."
    )
    num_io_threads = INT(8, HIGH, at_least(1), CLUSTER_WIDE).without_effect(
        "Threads that work on requests in Kafka. klamm answers from one event loop and off-loads slow file work."
    )
    background_threads = INT(10, HIGH, at_least(1), CLUSTER_WIDE).without_effect(
        "Threads for Kafka's background work. klamm schedules it in its event loop."
    )
    queued_max_requests = INT(500, HIGH, at_least(1)).without_effect(
        "Requests that may wait between Kafka's network and worker threads. klamm has no such queue."
    )
    queued_max_request_bytes = LONG(-1, MEDIUM).with_effect(
        "Bytes of requests that have begun to arrive and are not handled yet; -1: no limit. Above it, klamm reads only "
        "small requests that arrive whole."
    )
    request_timeout_ms = INT(30000, HIGH).with_effect(
        "Milliseconds that a follower, the controller or a transaction's coordinator waits for another broker's "
        "answer, and a marker for the in-sync replicas."
    )
    max_request_partition_size_limit = INT(2000, MEDIUM, at_least(1)).without_effect(
        "Maximum partitions that one DescribeTopicPartitions answer holds (KIP-966; KRaft only)."
    )
    unstable_api_versions_enable = BOOLEAN(False, HIGH, is_internal=True).without_effect(
        "Also serve API versions that are still being designed. klamm has none."
    )
    unstable_feature_versions_enable = BOOLEAN(False, HIGH, is_internal=True).without_effect(
        "Also allow feature versions that are still being designed. klamm has none."
    )
    server_max_startup_time_ms = LONG(LONG_MAX, MEDIUM, at_least(0), is_internal=True).without_effect(
        "Milliseconds that a KRaft server may take to start."
    )


class QuotaKeys:
    """Quotas and metrics"""

    quota_window_num = INT(11, LOW, at_least(1)).with_effect("Samples that client quotas are averaged over.")
    quota_window_size_seconds = INT(1, LOW, at_least(1)).with_effect("Seconds of one sample of client quotas.")
    replication_quota_window_num = INT(11, LOW, at_least(1)).with_effect(
        "Samples that replication throttles are averaged over."
    )
    replication_quota_window_size_seconds = INT(1, LOW, at_least(1)).with_effect(
        "Seconds of one sample of replication throttles."
    )
    alter_log_dirs_replication_quota_window_num = INT(11, LOW, at_least(1)).with_effect(
        "Samples that the throttle of moves between log dirs is averaged over."
    )
    alter_log_dirs_replication_quota_window_size_seconds = INT(1, LOW, at_least(1)).with_effect(
        "Seconds of one sample of that throttle."
    )
    controller_quota_window_num = INT(11, LOW, at_least(1)).with_effect(
        "Samples that quotas of topic changes are averaged over."
    )
    controller_quota_window_size_seconds = INT(1, LOW, at_least(1)).with_effect(
        "Seconds of one sample of those quotas."
    )
    client_quota_callback_class = CLASS(None, LOW).without_effect(
        "Java class that decides quotas instead of those in ZooKeeper. No broker of klamm starts with one."
    )
    metric_reporters = LIST((), LOW, dynamic=CLUSTER_WIDE).without_effect("Java classes that metrics are handed to.")
    auto_include_jmx_reporter = BOOLEAN(True, LOW).without_effect(
        "Deprecated: hand metrics to JMX even if `metric.reporters` does not name it."
    )
    metrics_num_samples = INT(2, LOW, at_least(1)).with_effect(
        "Samples over which the rates and means of Kafka's own metrics are taken; not those of its meters and quotas."
    )
    metrics_sample_window_ms = LONG(30000, LOW, at_least(1)).with_effect("Milliseconds of one of these samples.")
    metrics_recording_level = STRING("INFO", LOW).without_effect("How much is measured: INFO, DEBUG or TRACE.")
    kafka_metrics_reporters = LIST((), LOW).with_effect(
        "Reporters of metrics. klamm has `kafka.metrics.KafkaCSVMetricsReporter`, which writes a file for each metric "
        "into the folder `kafka.csv.metrics.dir` (`kafka_metrics`) if `kafka.csv.metrics.reporter.enabled` is `true`; "
        "other Java classes are left out. `klamm.metrics.reporters` has more."
    )
    kafka_metrics_polling_interval_secs = INT(10, LOW, at_least(1)).with_effect(
        "Seconds between two reports of metrics."
    )
    telemetry_max_bytes = INT(1_048_576, LOW, at_least(1)).without_effect(
        "Largest packet of metrics, in bytes, that a client may push (KIP-714)."
    )


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
