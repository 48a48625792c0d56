"""A place to play: set a goal by a click and watch a controller go there."""
