"""Typer commands of ``klamm``: parse, call the engine's admin operations or a part's entry point, print one result."""
