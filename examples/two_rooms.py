"""stable-worldmodel's TwoRoom in numpy alone: a dot in two rooms joined by a door, drawn at 224 px and shrunk."""

import numpy as np

SIDE, WALL_X, WALL_HALF, DOOR_Y, DOOR_HALF, RADIUS, SPEED = 224, 112, 5, 49, 14, 7.0, 5.0


class TwoRooms:
    def __init__(self, position, size):
        self.position = np.array(position, float)
        y, x = self.grid = np.mgrid[:SIDE, :SIDE]
        wall = (abs(x - WALL_X) <= WALL_HALF) & (abs(y - DOOR_Y) > DOOR_HALF)
        for axis in (x, y):
            wall |= ((axis >= 10) & (axis < 14)) | ((axis >= 210) & (axis < 214))
        self.floor = np.where(wall, 0.0, 255.0)[..., None].repeat(3, axis=2)
        edges = np.arange(size + 1) * SIDE / size  # how much of each pixel falls into each pixel of the small frame
        self.shrink = np.diff(np.clip(edges[:, None] - np.arange(SIDE), 0.0, 1.0), axis=0) * size / SIDE

    def step(self, action):
        before, after = self.position, self.position + SPEED * np.clip(action, -1.0, 1.0)
        after = np.clip(after, 14 + RADIUS, SIDE - 14 - RADIUS)
        if abs(after[1] - DOOR_Y) > DOOR_HALF + 1.75:  # not at the door
            left = before[0] < WALL_X
            edge = WALL_X - WALL_HALF - RADIUS - 0.5 if left else WALL_X + WALL_HALF + RADIUS + 0.5
            if (after[0] > edge + 0.5) if left else (after[0] < edge - 0.5):
                after[0] = edge
        self.position = after

    def render(self):
        y, x = self.grid
        dot = np.exp(-((x - self.position[0]) ** 2 + (y - self.position[1]) ** 2) / (2 * RADIUS**2))[..., None]
        frame = np.floor(self.floor * (1 - dot / dot.max()) + np.array([255.0, 0, 0]) * dot / dot.max())
        return np.rint(np.einsum("ai,ijc,bj->abc", self.shrink, frame, self.shrink, optimize=True)).astype(np.uint8)
