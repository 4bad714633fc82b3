"""Leaves that every layer may import: the domain model, errors, clocks. No I/O."""
