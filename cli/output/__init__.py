"""One result, six formats: reports made of typed columns, and their printers."""
