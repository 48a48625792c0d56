"""Fast-LeWM: a world model that predicts every prefix of a plan in one call."""
