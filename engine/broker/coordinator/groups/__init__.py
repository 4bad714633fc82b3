"""Consumer groups of the classic protocol: a pure core, its records in ``__consumer_offsets``, the loop around it."""
