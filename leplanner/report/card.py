"""The model card of a bundle: written from its own files and the evaluation's, so that no figure is typed by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from ..artifacts import read_json, read_lines
from ..evaluation.properties import SEARCH
from ..tasks import get_task
from .tables import Evaluation, read_evaluation


@dataclass(frozen=True)
class Making:
    """How a bundle came to be: what a card cannot find out by itself."""

    command: str
    scale: str
    data: Path
    stages: dict[str, Path]  # title -> folder of a trained part, in order
    practised: tuple[Path, ...] = ()  # the data with what earlier planners played, in order


def model_card(bundle: Path, evaluation: Path, making: Making) -> str:
    config = read_json(bundle / "config.json")
    world, planner = config["world"], config["planner"]
    task = get_task(world["task"])
    measured = read_evaluation(evaluation)
    methods = ",".join(dict.fromkeys(row.method for row in measured.methods))
    most = max(row.trials for row in measured.methods)
    searched = [row.trials for row in measured.methods if row.method in SEARCH]
    settings = {name: value for name, value in measured.settings.items() if searched or name != "search"}
    fewer = f" --search-trials {max(searched)}" if searched and max(searched) < most else ""
    lines = [
        f"# LePlanner for {task.title}, {making.scale} scale",
        "",
        f"A controller for `{task.env_id}` that plans from pixels: a world model ({world['model']['latent']} numbers a frame of "
        f"{world['model']['encoder']['frame_size']} px) and a planner of width {planner['width']} that drafts {planner['horizon']} blocks of "
        f"{world['block']} actions and corrects them {planner['refinements']} times. `leplanner.load(FOLDER)` loads it; a bundle that is "
        f'shipped with the package is `leplanner.load("{task.name}")`.',
        "",
        "## Results",
        "",
        f"{measured.title}; success in % with 95 % Wilson intervals; bundle `{config['digest'][:12]}`, manifest `{measured.manifest}`, "
        "which lies beside this card.",
        "",
        "| method | replans | n | any time | final | held 5 steps | strict |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {m.title} | {m.pace} | {m.trials} | {m.any_time} | {m.final} | {m.held} | {m.strict} |"
            for m in measured.methods
        ),
        "",
        *(f"{caveat}\n" for caveat in measured.caveats),
        *_paired(measured),
        f"Measured by `leplanner evaluate {task.name} --methods {methods} --trials {most}{fewer} --seed {measured.seed}`; "
        f"{_listed(settings)}; {_listed(measured.fingerprint)}.",
        "",
        "## How it was made",
        "",
        f"`{making.command}`",
        "",
        *(
            f"- {line}"
            for line in [_data(making.data), *_practice(making.practised), *_stages(making.stages), _arrival(config)]
        ),
        "",
        "## Limits",
        "",
        *(f"- {line}" for line in _limits(config, making)),
        "",
    ]
    return "\n".join(lines)


def _paired(measured: Evaluation) -> list[str]:
    compared = [f"- {m.title}, {m.pace}: {line}" for m in measured.methods for line in m.paired]
    title = "Paired differences of any-time success, in points (95 % bootstrap interval, exact McNemar p):"
    return [title, "", *compared, ""] if compared else []


def _data(file: Path) -> str:
    if file.suffix == ".h5" and file.exists():
        with h5py.File(file, "r") as opened:
            made = json.loads(str(opened.attrs.get("leplanner", "{}")))
        if made:
            config = made["config"]
            return (
                f"Data: {config['episodes']} episodes of {config['steps']} actions by the task's scripted behaviour, "
                f"{config['size']} px, seed {config['seed']}. Of the episodes 95 % train, the rest are held out."
            )
    return f"Data: {file.name}. Of the episodes 95 % train planner and density, the rest are held out."


def _practice(files: tuple[Path, ...]) -> list[str]:
    lines = []
    for file in files:
        with h5py.File(file, "r") as opened:
            config = json.loads(str(opened.attrs["leplanner"]))["config"]
        lines.append(
            f"Practice: {config['episodes']} episodes of {config['steps']} actions that an earlier planner (bundle "
            f"`{config['practised_by'][:12]}`) played from rows of training episodes towards later ones ({config['practice']}), seed {config['seed']}, added to the data."
        )
    return lines


def _stages(stages: dict[str, Path]) -> list[str]:
    lines = []
    for title, folder in stages.items():
        history = read_json(folder / "config.json")["training"]
        if "source" in history:
            lines.append(
                f"{title}: imported from {history['source']}; its training may have seen the held-out episodes."
            )
            continue
        settings = history["config"]
        minutes = [line["minutes"] for line in read_lines(folder / "metrics.jsonl") if "minutes" in line]
        spent = f", {minutes[-1]:.1f} minutes" if minutes else ""
        muon = ", matrices by Muon" if settings.get("optimizer") == "muon" else ""
        kept = settings.get("start_share")
        mixed = f" Its weights are {1 - kept:.0%} the end's and {kept:.0%} the start's." if kept else ""
        lines.append(
            f"{title}: {settings['steps']} steps of batch {settings['batch']}{muon}, seed {settings['seed']}{spent}.{mixed}"
        )
    return lines


def _arrival(config: dict[str, Any]) -> str:
    metrics = config["training"]["metrics"]
    share = metrics["held_out_arrival"][-1] / metrics["held_out_start"]
    return f"Held-out distance to the goal on arrival, in imagination: {share:.2%} of the start's."


def _limits(config: dict[str, Any], making: Making) -> list[str]:
    grounded = (
        "While the world was trained, a linear head read the simulator's state from its latents; the head is gone, and "
        "the planner sees pixels only."
    )
    guided = (
        "While the planner was trained, it was also asked to pass where the data had passed on its way to the goal (places, no "
        "actions; `--way-weight`), which the paper's objective does not ask for."
    )
    return [
        *([grounded] if config["world"]["grounded"] else []),
        *([guided] if config["training"]["config"].get("way_weight") else []),
        "It knows its data's states and this camera, lighting and frame size; others were not tried.",
        "Held-out episodes chose the checkpoint, and the trials come from them: they are validation data, not a second test set.",
        "One seed.",
    ]


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value != "")
