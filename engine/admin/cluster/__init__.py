"""A cluster as every operation needs it: which one the user means, connections to it, its brokers, errors."""
