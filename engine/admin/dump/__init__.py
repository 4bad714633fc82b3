"""Files that Kafka's or klamm's brokers wrote, decoded row by row. Asks no broker."""
