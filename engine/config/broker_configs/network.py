"""Settings of listeners, connections and requests."""

from __future__ import annotations

from engine.config.definition import ConfigKey
from engine.config.validators import OneOf, at_least
from engine.config.vocabulary import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    INT_MAX,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PER_BROKER,
    STRING,
)

KEYS = (
    ConfigKey(
        "listeners",
        STRING,
        "PLAINTEXT://:9092",
        HIGH,
        (
            "Addresses to listen on, as `NAME://host:port,…`. An empty host or `0.0.0.0` is every address of "
            "the machine, of IPv4 and IPv6. A name that is no security protocol needs an entry in "
            "`listener.security.protocol.map`."
        ),
        dynamic=PER_BROKER,
        has_effect=True,
    ),
    ConfigKey(
        "advertised.listeners",
        STRING,
        None,
        HIGH,
        (
            "Addresses that clients and other brokers are told, where they differ from `listeners` (NAT, "
            "containers, load balancers). `0.0.0.0` is not allowed."
        ),
        dynamic=PER_BROKER,
        has_effect=True,
    ),
    ConfigKey(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        LOW,
        (
            "The security protocol of each listener name, as `NAME:PROTOCOL,…`. Protocols: PLAINTEXT, SSL, "
            "SASL_PLAINTEXT, SASL_SSL."
        ),
        dynamic=PER_BROKER,
        has_effect=True,
    ),
    ConfigKey(
        "inter.broker.listener.name",
        STRING,
        None,
        MEDIUM,
        (
            "Name of the listener that brokers and the controller use among themselves. Do not set together with "
            "`security.inter.broker.protocol`."
        ),
        has_effect=True,
    ),
    ConfigKey(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        MEDIUM,
        (
            "Security protocol of the listener that brokers use among themselves. Do not set together with "
            "`inter.broker.listener.name`."
        ),
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        has_effect=True,
    ),
    ConfigKey(
        "control.plane.listener.name",
        STRING,
        None,
        HIGH,
        (
            "Name of a listener that only the controller uses. klamm serves it like any other and sends all "
            "requests to the inter-broker listener."
        ),
    ),
    ConfigKey(
        "early.start.listeners",
        STRING,
        None,
        HIGH,
        "Names of listeners that may serve before the authorizer is ready.",
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        INT,
        102_400,
        HIGH,
        "SO_SNDBUF of client connections, in bytes; -1 leaves it to the operating system.",
        has_effect=True,
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        INT,
        102_400,
        HIGH,
        (
            "SO_RCVBUF of client connections, in bytes; -1 leaves it to the operating system. Raise it for "
            "clients far away."
        ),
        has_effect=True,
    ),
    ConfigKey(
        "socket.request.max.bytes",
        INT,
        104_857_600,
        HIGH,
        "Largest request that is read, in bytes; a longer one costs its sender the connection.",
        at_least(1),
        has_effect=True,
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        INT,
        50,
        MEDIUM,
        (
            "Connections the operating system may hold back until the broker takes them. Raise it together with "
            "the kernel's `somaxconn`."
        ),
        at_least(1),
        has_effect=True,
    ),
    ConfigKey(
        "socket.connection.setup.timeout.ms",
        LONG,
        10000,
        MEDIUM,
        ("Milliseconds to wait for the first attempt to connect to another broker; it doubles with each failure."),
    ),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30000,
        MEDIUM,
        "Upper limit, in milliseconds, of that wait when it grows with each failure.",
    ),
    ConfigKey(
        "connections.max.idle.ms",
        LONG,
        600_000,
        MEDIUM,
        "Milliseconds after which a connection that asks nothing is closed; negative: never.",
        has_effect=True,
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        LOW,
        "Milliseconds to hold a connection open whose authentication failed, to slow guessing down.",
        at_least(0),
    ),
    ConfigKey(
        "max.connections",
        INT,
        INT_MAX,
        MEDIUM,
        "Most connections at one time, over all listeners. Brokers get in all the same where they have a listener of "
        "their own: the client that was silent for the longest makes room.",
        at_least(0),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "max.connections.per.ip",
        INT,
        INT_MAX,
        MEDIUM,
        "Most connections at one time from one address; 0 only together with overrides.",
        at_least(0),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        MEDIUM,
        "Other limits of connections for some addresses, as `host:number,…`; names are looked up when it is read.",
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "max.connection.creation.rate",
        INT,
        INT_MAX,
        MEDIUM,
        "Most new connections a second. klamm has no such limit.",
        at_least(0),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.network.threads",
        INT,
        3,
        HIGH,
        "Threads that read and write sockets in Kafka. klamm serves all connections from one event loop.",
        at_least(1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.io.threads",
        INT,
        8,
        HIGH,
        ("Threads that work on requests in Kafka. klamm answers from one event loop and off-loads slow file work."),
        at_least(1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigKey(
        "background.threads",
        INT,
        10,
        HIGH,
        "Threads for Kafka's background work. klamm schedules it in its event loop.",
        at_least(1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigKey(
        "queued.max.requests",
        INT,
        500,
        HIGH,
        "Requests that may wait between Kafka's network and worker threads. klamm has no such queue.",
        at_least(1),
    ),
    ConfigKey(
        "queued.max.request.bytes",
        LONG,
        -1,
        MEDIUM,
        (
            "Bytes of requests that may wait before no more are read; -1: no limit. klamm limits each connection "
            "instead."
        ),
    ),
    ConfigKey(
        "request.timeout.ms",
        INT,
        30000,
        HIGH,
        "Milliseconds to wait for another broker's answer.",
        has_effect=True,
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        INT,
        2000,
        MEDIUM,
        "Most partitions that one DescribeTopicPartitions answer holds (KIP-966; KRaft only).",
        at_least(1),
    ),
    ConfigKey(
        "unstable.api.versions.enable",
        BOOLEAN,
        False,
        HIGH,
        "Also serve API versions that are still being designed. klamm has none.",
        is_internal=True,
    ),
    ConfigKey(
        "unstable.feature.versions.enable",
        BOOLEAN,
        False,
        HIGH,
        "Also allow feature versions that are still being designed. klamm has none.",
        is_internal=True,
    ),
    ConfigKey(
        "server.max.startup.time.ms",
        LONG,
        LONG_MAX,
        MEDIUM,
        "Milliseconds that a KRaft server may take to start.",
        at_least(0),
        is_internal=True,
    ),
)
