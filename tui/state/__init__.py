"""What the dashboard knows of its clusters, and what it makes of that: figures, problems, standing. No Textual here."""
