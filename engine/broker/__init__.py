"""A Kafka broker: sockets, handlers, log, replication, controller and coordinators."""
