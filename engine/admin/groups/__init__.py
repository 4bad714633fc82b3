"""Consumer groups as an operator sees them: their members, how far they have read, and changes of their offsets.

``values`` has the data. ``group_reading`` (list, describe, committed offsets) and ``offsets.listing`` (start, end, by
time) ask a cluster: all brokers at once, with every failure as a value. The commands' operations use these; other code
that reads many groups may too.
"""
