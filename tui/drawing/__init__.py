"""How values are shown: units, cells with tones, columns of a table, lines, charts. Pure: no widgets and no colours."""
