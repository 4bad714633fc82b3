"""The two ways in which decompression fails. They never leave the record code."""

from __future__ import annotations


class Corrupt(Exception):
    """The compressed bytes are not what their codec says; the text says how."""


class TooLarge(Exception):
    """The plain bytes would not fit the limit."""
