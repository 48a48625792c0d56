"""LeWM: the world model of the paper, at released and compact sizes."""
