"""The version of klamm: the one place where it stands; the package's metadata is made from it."""

VERSION = "0.1.0"
