"""Records sent, read and deleted."""
