"""Plans in the dashboard: their forms, the desk that makes and carries them out, and how they and their runs look."""
