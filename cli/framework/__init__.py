"""What every command shares: options, the run of one command, errors, and talk on stderr."""
