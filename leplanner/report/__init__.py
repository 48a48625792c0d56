"""Pages and model cards, made from tables, rows and videos on disk alone."""
