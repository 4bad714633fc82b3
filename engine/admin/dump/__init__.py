"""Files that Kafka or a broker of ours wrote, decoded row by row. No broker is asked."""
