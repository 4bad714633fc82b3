"""What a broker counts and measures, as plain values under the names of Kafka's MBeans, and who may read it."""
