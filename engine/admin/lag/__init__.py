"""Which readers are behind, by how much, and whether they catch up: status by rule, lag in offsets and in time.

``verdicts`` judges, from a few samples and without thresholds; ``sampling`` takes samples; ``history`` keeps them in a
file; ``unread`` reads the timestamps of records; ``measuring`` does all that for a cluster, ``results`` is the answer.
"""
