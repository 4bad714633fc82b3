"""Settings of the connection to ZooKeeper and of the broker's identity in it."""

from __future__ import annotations

from engine.config.definition import ConfigKey
from engine.config.validators import at_least
from engine.config.vocabulary import BOOLEAN, HIGH, INT, LIST, LOW, MEDIUM, PASSWORD, STRING

KEYS = (
    ConfigKey(
        "zookeeper.connect",
        STRING,
        None,
        HIGH,
        (
            "ZooKeeper servers as `host:port,host:port`, with an optional chroot path at the end (`/kafka`) that "
            "several clusters can share one ensemble by. Must be set."
        ),
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms",
        INT,
        18000,
        HIGH,
        (
            "Milliseconds without a sign of life after which ZooKeeper ends the broker's session and the "
            "controller takes its partitions away. Lower finds dead brokers sooner, but punishes long pauses."
        ),
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms",
        INT,
        None,
        HIGH,
        "Milliseconds to wait for the first connection to ZooKeeper at start. Not set: the session time-out.",
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.max.in.flight.requests",
        INT,
        10,
        HIGH,
        ("How many requests may be under way to ZooKeeper at once. klamm sends up to 1,000 and keeps their order."),
        at_least(1),
    ),
    ConfigKey(
        "zookeeper.set.acl",
        BOOLEAN,
        False,
        HIGH,
        "Make znodes with ACLs, so that only who authenticates as a broker may change them.",
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.clientCnxnSocket",
        STRING,
        None,
        MEDIUM,
        "Java class of ZooKeeper's client socket; Kafka needs the Netty one for TLS.",
    ),
    ConfigKey(
        "zookeeper.ssl.client.enable",
        BOOLEAN,
        False,
        MEDIUM,
        "Talk to ZooKeeper over TLS. This broker cannot yet, and does not start with `true`.",
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.location",
        STRING,
        None,
        MEDIUM,
        "File with the key and certificate shown to ZooKeeper.",
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.password",
        PASSWORD,
        None,
        MEDIUM,
        "Password of the key store for ZooKeeper.",
    ),
    ConfigKey(
        "zookeeper.ssl.keystore.type",
        STRING,
        None,
        MEDIUM,
        "Format of the key store for ZooKeeper: JKS, PKCS12 or PEM; not set: told from the file's name.",
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.location",
        STRING,
        None,
        MEDIUM,
        "File with the certificates that ZooKeeper's own is checked against.",
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.password",
        PASSWORD,
        None,
        MEDIUM,
        "Password of the trust store for ZooKeeper.",
    ),
    ConfigKey(
        "zookeeper.ssl.truststore.type",
        STRING,
        None,
        MEDIUM,
        "Format of the trust store for ZooKeeper: JKS, PKCS12 or PEM; not set: told from the file's name.",
    ),
    ConfigKey(
        "zookeeper.ssl.protocol",
        STRING,
        "TLSv1.2",
        LOW,
        "TLS version to negotiate with ZooKeeper.",
    ),
    ConfigKey(
        "zookeeper.ssl.enabled.protocols",
        LIST,
        None,
        LOW,
        "TLS versions allowed with ZooKeeper; not set: the one of `zookeeper.ssl.protocol`.",
    ),
    ConfigKey(
        "zookeeper.ssl.cipher.suites",
        LIST,
        None,
        LOW,
        "Cipher suites allowed with ZooKeeper; not set: all that the platform offers.",
    ),
    ConfigKey(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        "HTTPS",
        LOW,
        "`HTTPS` checks that ZooKeeper's certificate names the host; empty does not.",
    ),
    ConfigKey(
        "zookeeper.ssl.crl.enable",
        BOOLEAN,
        False,
        LOW,
        "Check revocation lists for ZooKeeper's certificate.",
    ),
    ConfigKey(
        "zookeeper.ssl.ocsp.enable",
        BOOLEAN,
        False,
        LOW,
        "Ask by OCSP whether ZooKeeper's certificate was revoked.",
    ),
    ConfigKey(
        "zookeeper.metadata.migration.enable",
        BOOLEAN,
        False,
        HIGH,
        "Start the move of the metadata to KRaft. klamm brokers stay with ZooKeeper: switched on, it is refused.",
        has_effect=True,
    ),
    ConfigKey(
        "zookeeper.metadata.migration.min.batch.size",
        INT,
        200,
        MEDIUM,
        "Smallest batch, in records, of a migration to KRaft.",
        at_least(1),
        is_internal=True,
    ),
    ConfigKey(
        "broker.id",
        INT,
        -1,
        HIGH,
        (
            "The broker's number, unique in the cluster and stable over restarts. -1: ZooKeeper hands one out, "
            "see `broker.id.generation.enable`."
        ),
        has_effect=True,
    ),
    ConfigKey(
        "broker.id.generation.enable",
        BOOLEAN,
        True,
        MEDIUM,
        "Let ZooKeeper number brokers that have no `broker.id`.",
        has_effect=True,
    ),
    ConfigKey(
        "reserved.broker.max.id",
        INT,
        1000,
        MEDIUM,
        "Largest `broker.id` that may be chosen by hand; numbers handed out begin after it.",
        at_least(0),
        has_effect=True,
    ),
    ConfigKey(
        "broker.rack",
        STRING,
        None,
        MEDIUM,
        (
            "Rack or zone of the broker. Replicas of a partition are spread over racks, and consumers may read "
            "from their own (KIP-36, KIP-392)."
        ),
        has_effect=True,
    ),
)
