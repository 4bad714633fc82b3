"""Leader elections: what one would change, carrying it out, what became of each partition."""
