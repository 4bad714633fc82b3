"""The health of a cluster: facts are read, checks judge them, a report says what is wrong."""
