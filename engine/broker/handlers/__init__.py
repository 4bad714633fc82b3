"""One module per API, each with one registered function."""
