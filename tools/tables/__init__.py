"""Tables of the documentation, a module for each set; ``make_tables.py`` writes them."""
