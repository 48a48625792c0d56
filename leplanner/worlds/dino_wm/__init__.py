"""DINO-WM: frozen patch features, and a transformer that predicts the next frame's."""
