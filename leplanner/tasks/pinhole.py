"""A fixed camera: where a point of the scene is in the picture, and which point of the scene a click means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .spec import Array

Direction = tuple[float, float, float]


@dataclass(frozen=True)
class Pinhole:
    """As MuJoCo's cameras, drawing square pictures; meters."""

    position: Direction
    right: Direction  # unit vectors of the picture's axes in the scene
    up: Direction
    fovy_deg: float

    @property
    def _axes(self) -> Array:
        """Rows: right, up, ahead."""
        return np.stack([self.right, self.up, np.cross(self.up, self.right)])

    @property
    def _half_height(self) -> float:
        """Of the picture, one meter ahead."""
        return float(np.tan(np.deg2rad(self.fovy_deg) / 2))

    def project(self, points: Array) -> Array:
        """(..., 3) -> (..., 2): shares of the frame from its left and upper edge, beyond 0 and 1 outside of it."""
        right, up, ahead = np.moveaxis((points - np.array(self.position)) @ self._axes.T, -1, 0)
        return 0.5 + np.stack([right, -up], axis=-1) / (2 * self._half_height * ahead[..., None])

    def on_level(self, share: Array, height_m: float) -> Array:
        """(2,) -> (3,): the point of a horizontal plane that a place in the picture shows."""
        x, y = (np.asarray(share) - 0.5) * 2 * self._half_height
        ray = np.array([x, -y, 1.0]) @ self._axes
        return np.array(self.position) + ray * (height_m - self.position[2]) / ray[2]
