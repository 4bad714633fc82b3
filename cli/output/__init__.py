"""One result in each format: reports made of typed columns, and their printers."""
