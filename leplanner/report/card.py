"""The model card of a bundle: written from its own files and the evaluation's, so that no figure is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py

from ..artifacts import read_json, read_lines
from ..tasks import get_task
from .tables import read_evaluation


def model_card(base: Path, evaluation: Path, command: str) -> str:
    """Of the bundle at BASE/planner; `base` is the folder of `leplanner run`."""
    bundle = read_json(base / "planner" / "config.json")
    task = get_task(bundle["world"]["task"])
    measured = read_evaluation(evaluation)
    weights = bundle["planner"]
    lines = [
        f"# LePlanner for {task.title}, compact",
        "",
        f"A controller for `{task.env_id}` that plans from pixels: a world model ({bundle['world']['model']['latent']} numbers a frame of "
        f"{bundle['world']['model']['encoder']['frame_size']} px) and a planner of width {weights['width']} that corrects its plan of "
        f'{weights["horizon"]} blocks {weights["refinements"]} times. Load it with `leplanner.load("{task.name}")`.',
        "",
        "## Results",
        "",
        f"{measured.title}; success in % with 95 % Wilson intervals; manifest `{measured.manifest}`, shipped beside this card.",
        "",
        "| method | replans | n | any time | final | held 5 steps | strict |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {m.title} | {m.pace} | {m.trials} | {m.any_time} | {m.final} | {m.held} | {m.strict} |"
            for m in measured.methods
        ),
        "",
        *_paired(measured),
        f"Measured by `leplanner evaluate {task.name}`; settings: {_listed(measured.settings)}; {_listed(measured.fingerprint)}.",
        "",
        "## How it was made",
        "",
        f"`{command}`",
        "",
        *(f"- {line}" for line in _stages(base, bundle)),
        "",
        "## Limits",
        "",
        *(f"- {line}" for line in _limits(bundle)),
        "",
    ]
    return "\n".join(lines)


def _paired(measured: Any) -> list[str]:
    compared = [f"- {m.title}, {m.pace}: {line}" for m in measured.methods for line in m.paired]
    return (
        ["Paired differences of any-time success, in points, with exact McNemar p:", "", *compared, ""]
        if compared
        else []
    )


def _stages(base: Path, bundle: dict[str, Any]) -> list[str]:
    data, training = bundle["provenance"]["inputs"]["data"], bundle["training"]
    lines = [f"Data: {_data(base)}, digest `{data[:12]}`; 95 % of the episodes train, the rest are held out."]
    for name, folder in (("World", "world"), ("Predictor refined", "refined"), ("Planner", "planner")):
        if (base / folder / "config.json").exists():
            history = read_json(base / folder / "config.json")["training"]
            settings = history.get("config")
            if settings is None:
                lines.append(f"{name}: imported from {history.get('source')}.")
                continue
            minutes = [line["minutes"] for line in read_lines(base / folder / "metrics.jsonl") if "minutes" in line]
            spent = f", {minutes[-1]:.0f} minutes" if minutes else ""
            lines.append(
                f"{name}: {settings['steps']} steps of batch {settings['batch']}, seed {settings['seed']}{spent}."
            )
    arrival = training["metrics"]["held_out_arrival"][-1] / training["metrics"]["held_out_start"]
    lines.append(f"Held-out distance to the goal on arrival, in imagination: {arrival:.2%} of the start's.")
    return lines


def _data(base: Path) -> str:
    if not (base / "data.h5").exists():
        return "given"
    with h5py.File(base / "data.h5", "r") as file:
        config = json.loads(str(file.attrs["leplanner"]))["config"]
    return (
        f"{config['episodes']} episodes of {config['steps']} actions by the task's scripted behaviour, {config['size']} px, "
        f"seed {config['seed']}"
    )


def _limits(bundle: dict[str, Any]) -> list[str]:
    grounded = (
        [
            "While the world was trained, a linear head read the simulator's state from its latents; the head is gone, the planner sees pixels only."
        ]
        if bundle["world"]["grounded"]
        else []
    )
    return [
        *grounded,
        "It knows the scripted behaviour's states and this camera, lighting and frame size; others were not tried.",
        "Held-out episodes chose the checkpoint and are where the trials come from: they are validation data, not a second test set.",
        "One seed.",
    ]


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
