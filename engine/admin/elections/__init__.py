"""Leader elections: what one would change, carrying it out, and the outcome for each partition."""
