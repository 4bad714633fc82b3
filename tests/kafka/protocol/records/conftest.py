"""Imports kafka-python once and silences the deprecation warning of that import, which we cannot mend."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
