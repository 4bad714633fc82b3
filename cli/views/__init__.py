"""From an operation's result to the report that is printed. Pure."""
