"""The commands, one file per group. Imported when the command is called, not before."""
