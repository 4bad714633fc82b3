"""A cluster watched: one frozen frame after the other, what changed between them, recorded and played again."""
