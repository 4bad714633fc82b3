"""What the dashboard knows about its clusters, and what follows: figures, problems, health. No Textual here."""
