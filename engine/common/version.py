"""The version of klamm, in its only place; the package's metadata is made from it."""

VERSION = "0.1.0"
