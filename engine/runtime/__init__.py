"""asyncio's edges: loop clock, supervision, purgatory of delayed operations, off-loading of slow work."""
