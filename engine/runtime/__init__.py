"""asyncio's edges: turns, supervision, purgatory of delayed operations, off-loading of slow work, served metrics,
and the files that people name."""
