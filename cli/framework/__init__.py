"""What every command shares: options, the run of one command, errors and exit codes, talk on stderr."""
