"""One self-contained HTML page about evaluations: tables, and films of executed trials. Reads files only; no torch, no network."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import atomic_path
from ..evaluation.films import EVERY, Film, film_path, load_film
from ..evaluation.metrics import HOLD_STEPS
from ..tasks import get_task
from .tables import Evaluation, read_evaluation

BORDER_PX = 4
REACHED, ON_ITS_WAY = (0, 158, 115), (120, 120, 120)  # a green that colour-blind eyes tell from grey
FRAME_MS = 60 * EVERY
PAUSE_FRAMES = 8  # at the end, before the film starts again


@dataclass(frozen=True)
class Clip:
    method: str
    title: str
    animation: str  # data URI
    verdict: str


@dataclass(frozen=True)
class TrialClips:
    trial: int
    goal: str  # data URI
    clips: list[Clip]


def write_page(folders: list[Path], out: Path, title: str = "leplanner") -> Path:
    """`folders` are those that `leplanner evaluate` made."""
    check_installed()
    import jinja2

    evaluations = [read_evaluation(folder) for folder in folders]
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string((Path(__file__).parent / "page.html.j2").read_text())
    sections = [
        {"e": evaluation, "task": get_task(evaluation.task), "trials": film_table(folder, evaluation)}
        for folder, evaluation in zip(folders, evaluations, strict=True)
    ]
    with atomic_path(out) as temporary:
        temporary.write_text(template.render(title=title, sections=sections, hex_reached=_hex(REACHED)))
    return out


def check_installed() -> None:
    try:
        import imageio.v3  # noqa: F401
        import jinja2  # noqa: F401
    except ImportError as error:
        raise ImportError("A report needs jinja2 and imageio: pip install 'leplanner[report]'") from error


def film_table(folder: Path, evaluation: Evaluation) -> list[TrialClips]:
    """Every trial that was filmed, with the clips of all methods beside each other, in the table's order."""
    unit = get_task(evaluation.task).error_unit
    table = []
    for trial in range(max(row.trials for row in evaluation.methods)):
        clips, goal = [], ""
        for row in evaluation.methods:
            path = film_path(
                folder,
                row.method,
                row.replan,
                trial,
                evaluation.manifest,
                evaluation.seed,
                evaluation.settings,
                row.weights,
            )
            if path.exists():
                film = load_film(path)
                goal = goal or _data_uri(film.goal[None], ".png")
                clips.append(Clip(row.method, f"{row.title}, {row.pace}", animation(film), verdict(film, unit)))
        if clips:
            table.append(TrialClips(trial, goal, clips))
    return table


def verdict(film: Film, unit: str) -> str:
    reached = film.reached[1:]  # the start does not count
    if not reached.any():
        return f"not reached; {film.error[-1]:.2g} {unit} away at the end"
    first = int(np.argmax(reached)) + 1
    if reached[-HOLD_STEPS:].all():
        return f"reached at step {first}, there at the end"
    return f"reached at step {first}, did not stay; {film.error[-1]:.2g} {unit} away at the end"


def animation(film: Film) -> str:
    """Framed copies: grey on the way, green while the goal is reached."""
    framed = np.stack(
        [_frame(frame, bool(film.reached[step])) for frame, step in zip(film.frames, film.steps, strict=True)]
    )
    return _data_uri(np.concatenate([framed, np.repeat(framed[-1:], PAUSE_FRAMES, axis=0)]), ".webp")


def _frame(frame: np.ndarray, reached: bool) -> np.ndarray:
    framed = np.empty((frame.shape[0] + 2 * BORDER_PX, frame.shape[1] + 2 * BORDER_PX, 3), np.uint8)
    framed[:] = REACHED if reached else ON_ITS_WAY
    framed[BORDER_PX:-BORDER_PX, BORDER_PX:-BORDER_PX] = frame
    return framed


def _data_uri(frames: np.ndarray, extension: str) -> str:
    import imageio.v3 as imageio

    options: dict[str, Any] = {"duration": FRAME_MS, "loop": 0, "quality": 80} if extension == ".webp" else {}
    image = frames if len(frames) > 1 else frames[0]
    encoded = imageio.imwrite("<bytes>", image, extension=extension, plugin="pillow", **options)
    return f"data:image/{extension[1:]};base64,{base64.b64encode(encoded).decode()}"


def _hex(colour: tuple[int, int, int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
