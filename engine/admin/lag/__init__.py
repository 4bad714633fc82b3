"""Which readers are behind, by how much, and whether they catch up: status by rule, lag in offsets and in time.

``verdicts`` judges, from a few samples and without thresholds; ``sampling`` takes samples; ``history`` keeps them in a
file; ``unread`` reads the timestamps of records; ``measuring`` does all that for a cluster, ``results`` is the answer.
``pace`` and ``group_paces`` know how often readers commit, and whose turn it is among the partitions of a member.
``metrics`` is for exporters. Files that begin with ``spark_`` are about queries, those with ``history_`` about the
folder that ``klamm spark lag`` fills.
"""
