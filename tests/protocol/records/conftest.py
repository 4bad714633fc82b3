"""Loads kafka-python once, with the deprecation warning of its own import silenced: it is not ours to mend."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
