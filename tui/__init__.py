"""The Textual dashboard (``klamm top``)."""
