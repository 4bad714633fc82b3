"""Access rules: listed, added, removed, explained, checked, and kept as a file."""
