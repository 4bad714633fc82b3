"""A cluster as every operation needs it: which one is meant, connections to it, who is in it, errors."""
