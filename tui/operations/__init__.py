"""What the dashboard can change: each operation says what it would do, and has `engine.admin` do it. No widgets."""
