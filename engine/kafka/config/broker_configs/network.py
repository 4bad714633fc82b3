"""Settings of listeners, connections and requests."""

from __future__ import annotations

from engine.kafka.config.definition import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LONG, LOW, MEDIUM, PER_BROKER, STRING
from engine.kafka.config.listeners import parse_connection_overrides
from engine.kafka.config.validators import OneOf, at_least
from engine.kafka.config.values import INT_MAX, LONG_MAX


class NetworkKeys:
    """Network"""

    listeners = STRING("PLAINTEXT://:9092", HIGH, dynamic=PER_BROKER, at_start_only=True).with_effect(
        "Addresses to listen on, as `NAME://host:port,…`. An empty host or `0.0.0.0` is every address of the machine, "
        "of IPv4 and IPv6. A name that is not a security protocol needs an entry in `listener.security.protocol.map`."
    )
    advertised_listeners = STRING(None, HIGH, dynamic=PER_BROKER, at_start_only=True).with_effect(
        "Addresses for clients and other brokers, if they differ from `listeners` (NAT, containers, load "
        "balancers). `0.0.0.0` is not allowed."
    )
    listener_security_protocol_map = STRING(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        LOW,
        dynamic=PER_BROKER,
        at_start_only=True,
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
    control_plane_listener_name = STRING(None, HIGH).without_effect(
        "Name of a listener that only the controller uses. klamm serves it like any other and sends all requests to "
        "the inter-broker listener."
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
    socket_connection_setup_timeout_ms = LONG(10000, MEDIUM).without_effect(
        "Milliseconds to wait for the first attempt to connect to another broker; it doubles with each failure."
    )
    socket_connection_setup_timeout_max_ms = LONG(30000, MEDIUM).without_effect(
        "Upper limit, in milliseconds, of that wait when it grows with each failure."
    )
    connections_max_idle_ms = LONG(600_000, MEDIUM).with_effect(
        "Milliseconds after which an idle connection is closed; negative: never."
    )
    connection_failed_authentication_delay_ms = INT(100, LOW, at_least(0)).with_effect(
        "Milliseconds to keep a connection open after failed authentication, to slow guessing down."
    )
    max_connections = INT(INT_MAX, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Maximum connections at one time, over all listeners. Brokers can still connect if they have a listener of "
        "their own: the client that has been idle longest is closed."
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
    queued_max_request_bytes = LONG(-1, MEDIUM).without_effect(
        "Bytes of requests that may wait before no more are read; -1: no limit. klamm limits each connection instead."
    )
    request_timeout_ms = INT(30000, HIGH).with_effect(
        "Milliseconds that a transaction's coordinator waits for another broker's answer, and a marker for the in-sync "
        "replicas. Elsewhere klamm uses `replica.socket.timeout.ms` and `controller.socket.timeout.ms`."
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
