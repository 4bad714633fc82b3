"""Log dirs of brokers with the replicas in them: described, and added up."""
