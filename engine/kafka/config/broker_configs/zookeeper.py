"""Settings of the connection to ZooKeeper and of the broker's identity in it."""

from __future__ import annotations

from engine.kafka.config.definition import BOOLEAN, HIGH, INT, LIST, LOW, MEDIUM, PASSWORD, STRING
from engine.kafka.config.validators import at_least


class ZooKeeperKeys:
    """ZooKeeper and the broker's identity"""

    zookeeper_connect = (
        STRING(None, HIGH)
        .required()
        .with_effect(
            "ZooKeeper servers as `host:port,host:port`, with an optional chroot path at the end (`/kafka`), so "
            "that several clusters can share one ensemble. Must be set."
        )
    )
    zookeeper_session_timeout_ms = INT(18000, HIGH).with_effect(
        "Milliseconds without a heartbeat after which ZooKeeper ends the broker's session and the controller takes "
        "its partitions away. Lower values find dead brokers sooner, but penalise long pauses."
    )
    zookeeper_connection_timeout_ms = (
        INT(None, HIGH)
        .or_else(lambda broker: broker.zookeeper_session_timeout_ms)
        .with_effect(
            "Milliseconds to wait for the first connection to ZooKeeper at start. Not set: the session time-out."
        )
    )
    zookeeper_max_in_flight_requests = INT(10, HIGH, at_least(1)).without_effect(
        "How many requests may be under way to ZooKeeper at once. klamm sends up to 1,000 and keeps their order."
    )
    zookeeper_set_acl = BOOLEAN(False, HIGH).with_effect(
        "Create znodes with ACLs, so that only authenticated brokers may change them."
    )
    zookeeper_clientCnxnSocket = STRING(None, MEDIUM).without_effect(
        "Java class of ZooKeeper's client socket; Kafka needs the Netty one for TLS."
    )
    zookeeper_ssl_client_enable = BOOLEAN(False, MEDIUM).with_effect("Talk to ZooKeeper over TLS.")
    zookeeper_ssl_keystore_location = STRING(None, MEDIUM).with_effect(
        "File with the key and certificate shown to ZooKeeper."
    )
    zookeeper_ssl_keystore_password = PASSWORD(None, MEDIUM).with_effect("Password of the key store for ZooKeeper.")
    zookeeper_ssl_keystore_type = STRING(None, MEDIUM).with_effect(
        "Format of the key store for ZooKeeper: JKS, PKCS12 or PEM; not set: known by the file's name."
    )
    zookeeper_ssl_truststore_location = STRING(None, MEDIUM).with_effect(
        "File with the certificates that ZooKeeper's own is checked against."
    )
    zookeeper_ssl_truststore_password = PASSWORD(None, MEDIUM).with_effect("Password of the trust store for ZooKeeper.")
    zookeeper_ssl_truststore_type = STRING(None, MEDIUM).with_effect(
        "Format of the trust store for ZooKeeper: JKS, PKCS12 or PEM; not set: known by the file's name."
    )
    zookeeper_ssl_protocol = STRING("TLSv1.2", LOW).with_effect("TLS version to negotiate with ZooKeeper.")
    zookeeper_ssl_enabled_protocols = LIST(None, LOW).with_effect(
        "TLS versions allowed with ZooKeeper. Not set: the one that `zookeeper.ssl.protocol` is set to, else TLSv1.2 "
        "and TLSv1.3, of which new servers allow only the latter."
    )
    zookeeper_ssl_cipher_suites = LIST(None, LOW).with_effect(
        "Cipher suites allowed with ZooKeeper; not set: all that the platform offers."
    )
    zookeeper_ssl_endpoint_identification_algorithm = STRING("HTTPS", LOW).with_effect(
        "`HTTPS` checks that ZooKeeper's certificate names the host; empty does not."
    )
    zookeeper_ssl_crl_enable = BOOLEAN(False, LOW).with_effect(
        "Check revocation lists for ZooKeeper's certificate. This broker cannot, and does not start with `true`."
    )
    zookeeper_ssl_ocsp_enable = BOOLEAN(False, LOW).with_effect(
        "Ask by OCSP whether ZooKeeper's certificate was revoked. This broker cannot, and does not start with `true`."
    )
    zookeeper_metadata_migration_enable = BOOLEAN(False, HIGH).with_effect(
        "Start the move of the metadata to KRaft. klamm brokers stay with ZooKeeper and refuse it."
    )
    zookeeper_metadata_migration_min_batch_size = INT(200, MEDIUM, at_least(1), is_internal=True).without_effect(
        "Smallest batch, in records, of a migration to KRaft."
    )
    broker_id = INT(-1, HIGH).with_effect(
        "The broker's number, unique in the cluster and stable over restarts. -1: ZooKeeper hands one out, see "
        "`broker.id.generation.enable`."
    )
    broker_id_generation_enable = BOOLEAN(True, MEDIUM).with_effect(
        "Let ZooKeeper number brokers that have no `broker.id`."
    )
    reserved_broker_max_id = INT(1000, MEDIUM, at_least(0)).with_effect(
        "Largest `broker.id` that may be chosen by hand; numbers handed out begin after it."
    )
    broker_rack = STRING(None, MEDIUM).with_effect(
        "Rack or zone of the broker. Replicas of a partition are spread over racks, and consumers may read from their "
        "own (KIP-36, KIP-392)."
    )
