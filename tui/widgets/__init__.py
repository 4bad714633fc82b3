"""Widgets of the dashboard: what is drawn, from values that are worked out elsewhere."""
