"""The version of klamm; nothing else defines it, and the package's metadata takes it from here."""

VERSION = "0.1.0"
