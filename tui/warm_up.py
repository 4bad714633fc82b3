"""Loads the modules that keys need later, so that no key waits for an import: that of the plans takes 0.2 s.

The first picture does without them. They are loaded once it is drawn, in a thread, which Python interrupts every few
milliseconds for the event loop.
"""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "engine.admin.state_changes.partition_log",
    "engine.admin.znodes.tree",
    "tui.operations.elections",
    "tui.operations.groups",
    "tui.operations.reassignments",
    "tui.operations.records",
    "tui.operations.replicas",
    "tui.operations.settings",
    "tui.operations.topics",
    "tui.pages.plans",
    "tui.plan_desk",
    "tui.plan_offers",
)
"""Whatever ``tui`` imports inside functions, but for what a command line or a broken file needs."""


def load_modules() -> None:
    """Load them, and what they need."""
    for name in MODULES:
        import_module(name)
