"""Transactions: a pure core, its records in ``__transaction_state``, and the loop around it.

``transaction`` is the state of one transactional id with the table of its transitions; ``state_machine`` says what a
request or a time-out means for it. Neither knows a clock, a log or a network. ``coordinator`` carries decisions out:
it writes the new state to the log, and only when that is replicated the state changes and the client gets its answer.
``markers`` then sends the markers to the leaders of the partitions, and ``verifier`` asks another broker's coordinator
whether a partition belongs to a transaction, before its leader writes to it (KIP-890).

Source: TransactionCoordinator, TransactionMetadata, TransactionStateManager and TransactionMarkerChannelManager of
Kafka 3.9.
"""
