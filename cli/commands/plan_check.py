"""``klamm plan check`` and ``diff``."""
