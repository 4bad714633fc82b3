"""Consumer groups as an operator sees them: who is in them, how far they have read, and how that is changed.

``values`` has the data. What asks a cluster, all brokers at once and with every failure as a value, is in
``group_reading`` (list, describe, committed offsets) and ``offsets.listing`` (start, end, by time). The commands'
operations build on these; anything else that reads many groups may too.
"""
