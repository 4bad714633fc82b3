"""One codec class per znode, under Kafka's names."""
