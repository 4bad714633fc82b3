"""Widgets of the dashboard: they draw values that are computed elsewhere."""
