"""The commands: a file or a folder for each noun. Imported when a command is called, not before."""
