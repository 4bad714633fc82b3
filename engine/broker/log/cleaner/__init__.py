"""Log compaction: which log, how, in which process, and how the result takes the log's place."""
