"""One self-contained HTML page about evaluations and diagnostics: tables, figures, and films of executed trials. Reads files
only; no torch, no network."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import atomic_path, read_json
from ..evaluation.films import EVERY, Film, film_path, load_film
from ..evaluation.metrics import HOLD_STEPS
from ..tasks import get_task
from . import figures
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


@dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    uri: str


def write_page(folders: list[Path], out: Path, title: str = "leplanner", figure_folder: Path | None = None) -> Path:
    """`folders` are those that `leplanner evaluate` and `leplanner diagnose` made; figures are also kept in
    `figure_folder`, as SVG and PNG."""
    check_installed()
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string((Path(__file__).parent / "page.html.j2").read_text())
    measured, diagnosed = [], []
    for number, folder in enumerate(folders, start=1):
        if (folder / "imagined.json").exists():
            task, drawn, about = diagnosis(folder)
            diagnosed.append(
                {"task": get_task(task), "pictures": _pictures(drawn, number, figure_folder), "about": about}
            )
        else:
            evaluation = read_evaluation(folder)
            pictures = _pictures(evaluation_figures(evaluation), number, figure_folder)
            section = {"e": evaluation, "task": get_task(evaluation.task), "trials": film_table(folder, evaluation)}
            measured.append(section | {"pictures": pictures})
    with atomic_path(out) as temporary:
        page = template.render(title=title, sections=measured, diagnosed=diagnosed, hex_reached=_hex(REACHED))
        temporary.write_text(page)
    return out


def evaluation_figures(evaluation: Evaluation) -> dict[str, tuple[str, Any]]:
    """Name -> caption and figure."""
    title = get_task(evaluation.task).title
    return {
        f"{evaluation.task}_success": ("Success with 95 % Wilson intervals", figures.success(evaluation, title)),
        f"{evaluation.task}_cost": ("What a decision costs", figures.cost(evaluation, title)),
    }


def diagnosis(folder: Path) -> tuple[str, dict[str, tuple[str, Any]], str]:
    """The task, its figures by name with captions, and where the tables came from."""
    imagined = read_json(folder / "imagined.json")
    task = imagined["task"]
    title = get_task(task).title
    drawn = {
        f"{task}_arrival": ("When plans arrive, in imagination", figures.arrival_profiles(imagined, title)),
        f"{task}_depth": ("What each correction buys, in imagination", figures.refinement_depth(imagined, title)),
    }
    about = f"{imagined['problems']} held-out problems, bundle {imagined['bundle'][:12]}, data {imagined['data'][:12]}"
    if (folder / "closed_loop.json").exists():
        executed = read_json(folder / "closed_loop.json")
        drawn[f"{task}_closed_loop"] = ("Where the closed loop settles", figures.closed_loop(executed, title))
        drawn[f"{task}_drift"] = ("Imagination against the environment", figures.drift(executed, title))
        about += f", {executed['trials']} trials of manifest {executed['manifest'][:12]}"
    return task, drawn, about


def _pictures(drawn: dict[str, tuple[str, Any]], number: int, folder: Path | None) -> list[Picture]:
    made = []
    for name, (caption, figure) in drawn.items():
        if folder is not None:
            figures.save(figure, folder, f"{number}_{name}")
        encoded = base64.b64encode(figures.rendered(figure, "svg")).decode()
        made.append(Picture(name, caption, f"data:image/svg+xml;base64,{encoded}"))
    return made


def check_installed() -> None:
    try:
        import imageio.v3  # noqa: F401
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("A report needs jinja2, imageio and matplotlib: pip install 'leplanner[report]'") from error


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
