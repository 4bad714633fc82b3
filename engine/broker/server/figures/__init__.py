"""The figures of each part of a running broker, as Kafka's MBeans."""
