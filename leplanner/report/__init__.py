"""Pages and model cards, made from tables, rows and films on disk alone."""
