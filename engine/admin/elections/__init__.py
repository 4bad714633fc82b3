"""Leader elections: what an election would change, how it runs, and the outcome for each partition."""
