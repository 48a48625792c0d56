"""Videos of trials: frames drawn for people, apart from those that a method sees, and the
traces of the plans meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import digest_json, write_arrays
from ..control.methods import settings_of

EVERY = 2  # environment steps between two frames


@dataclass(frozen=True)
class PlanTraceLog:
    """Of every decision, what each refinement imagined; nothing for methods that do not refine plans."""

    decided: np.ndarray  # (n,) environment steps done at each decision
    distances: np.ndarray  # (n, K+1, H) to the goal, after each block of the draft and of each refinement
    imagined: np.ndarray  # (n, H, *Z) fp16 latents of the plan that was decided for

    @staticmethod
    def none() -> PlanTraceLog:
        return PlanTraceLog(np.zeros(0, int), np.zeros((0, 0, 0), np.float32), np.zeros((0, 0, 0), np.float16))


@dataclass(frozen=True)
class Video:
    frames: np.ndarray  # (F, S, S, 3) uint8: the start, every other step, the end
    steps: np.ndarray  # (F,) environment steps done at each frame
    goal: np.ndarray  # (S, S, 3)
    target: np.ndarray  # (S, S) bool: where the goal image shows what is scored; nowhere if the task does not say
    reached: np.ndarray  # (T+1,) whether the goal is reached, at the start and after every step
    error: np.ndarray  # (T+1,) in the task's unit
    states: np.ndarray  # (T+1, state)
    trace: PlanTraceLog


def video_path(
    folder: Path, method: str, replan: int, trial: int, manifest: str, seed: int, settings: dict[str, Any], weights: str
) -> Path:
    """The name holds all that decides the video, so that none is taken for another's."""
    identity = digest_json([manifest, seed, settings_of(method, settings), weights])[:8]
    return folder / "videos" / f"{method}-m{replan}-{trial:04d}-{identity}.npz"


def save_video(video: Video, path: Path) -> None:
    parts = {name: value for name, value in vars(video).items() if name != "trace"}
    write_arrays(path, parts | {f"trace_{name}": value for name, value in vars(video.trace).items()})


def load_video(path: Path) -> Video:
    with np.load(path) as arrays:
        parts = {name: arrays[name] for name in arrays.files}
    try:
        trace = {name: parts.pop(f"trace_{name}") for name in PlanTraceLog.__dataclass_fields__}
        return Video(**parts, trace=PlanTraceLog(**trace))
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is a video of another version of leplanner ({error}). Delete the folder and "
            "evaluate with --videos again."
        ) from error
