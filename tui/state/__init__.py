"""What the dashboard remembers beyond the newest frame. No Textual here, and nothing that asks a cluster."""
