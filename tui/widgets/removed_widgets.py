"""Frees what Textual keeps of widgets that are gone.

Textual 8 caches the colours behind a widget under a key that holds all lines the widget has drawn, for the latest 1,024
widgets (its issue 6665). Each window that is opened and closed would leave some 100 kB behind.
"""

from __future__ import annotations

from importlib import import_module


def forget_removed_widgets() -> None:
    """Empty that cache; the few widgets on the screen fill it again. If Textual no longer has it, do nothing."""
    try:
        kept = import_module("textual._styles_cache").StylesCache.get_inner_outer
    except (ImportError, AttributeError):
        return
    clear = getattr(kept, "cache_clear", None)
    if clear is not None:
        clear()
