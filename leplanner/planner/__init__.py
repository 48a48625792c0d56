"""The LePlanner model, its objectives and its training."""
