"""One module per API: every version of its request and answer, declared once."""
