"""Draws docs/images/tasks.png from the four collected datasets (leplanner collect TASK)."""

from pathlib import Path

import imageio.v3 as imageio
import numpy as np

from leplanner import TASKS, open_episodes

SIZE, COLUMNS, EPISODE = 128, 9, 3


def enlarge(frame: np.ndarray) -> np.ndarray:
    """Whole pixels, so that one sees what the encoder sees."""
    index = np.arange(SIZE) * len(frame) // SIZE
    return np.pad(frame[index][:, index], ((2, 2), (2, 2), (0, 0)), constant_values=255)


rows = []
for name in TASKS:
    episodes = open_episodes(f"runs/{name}/data.h5", in_memory=False)
    first = int(episodes.starts[EPISODE])
    frames = episodes.frames[first : first + 2 * COLUMNS : 2]
    rows.append(np.concatenate([enlarge(frame) for frame in frames], axis=1))
out = Path(__file__).parent / "images" / "tasks.png"
imageio.imwrite(out, np.concatenate(rows))
print(out)
