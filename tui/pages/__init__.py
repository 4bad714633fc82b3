"""One file per screen of the dashboard: its columns, its rows and the line above them. Pure: no widgets."""
