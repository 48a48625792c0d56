"""The model card of a bundle: written from its own files and the evaluation's, so that no figure is typed by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from ..artifacts import read_artifact, read_json
from ..core.latent import LatentSpec
from ..tasks import get_task
from ..worlds import FAMILIES, WorldSpec
from ..worlds.pretraining import training_minutes
from .card_metadata import card_metadata
from .tables import Evaluation, read_evaluation


@dataclass(frozen=True)
class Making:
    """How a bundle came to be: what its files do not say."""

    command: str
    scale: str
    recipe: str
    family: str  # of the world
    data: Path
    stages: dict[str, Path]  # title -> folder of a trained part, in order
    on_policy: tuple[Path, ...] = ()  # the data with what earlier planners collected, in order
    test_episodes: int = 0  # that the trials were drawn from; 0: they are from the data's held-out episodes
    frames_px: int | None = None  # as they are stored, if that is known


def model_card(bundle: Path, evaluation: Path, making: Making) -> str:
    config = read_artifact(bundle, "bundle")
    task = get_task(config["world"]["task"])
    measured = read_evaluation(evaluation)
    titles = list(measured.metrics.values())
    lines = [
        card_metadata(measured),
        f"# LePlanner for {task.title}, {making.scale} scale, {making.recipe} recipe",
        "",
        *_summary(config, making),
        "",
        "## Results",
        "",
        f"{measured.title}; success in % with 95 % Wilson intervals; bundle `{config['digest'][:12]}`, manifest "
        f"`{measured.manifest}`, stored beside this card.",
        "",
        f"| {' | '.join(['method', 'replans', 'n', *titles])} |",
        "|" + "---|" * (3 + len(titles)),
        *(
            f"| {' | '.join([m.title, m.pace, str(m.trials), *(m.shown.get(name, '') for name in measured.metrics)])} |"
            for m in measured.methods
        ),
        "",
        *(f"{caveat}\n" for caveat in measured.caveats),
        *_paired(measured),
        _measured_by(measured),
        "",
        "## How it was made",
        "",
        f"`{making.command}`",
        "",
        *(f"- {line}" for line in (_data(making.data), *_resized(config, making), *_on_policy(making.on_policy))),
        *(f"- {line}" for line in _stages(making.stages)),
        f"- {_arrival(config)}",
        "",
        "## Limits",
        "",
        *(f"- {line}" for line in _limits(config, making)),
        "",
    ]
    return "\n".join(lines)


def _summary(config: dict[str, Any], making: Making) -> list[str]:
    spec, planner = WorldSpec.from_json(config["world"]), config["planner"]
    task = get_task(spec.task)
    environment = f"`{task.env_id}`" if task.env_id else task.title
    kind = FAMILIES.get(making.family) if making.family in FAMILIES else None
    family, encoder = (kind.title, kind.about(spec.network)) if kind else (making.family, "")
    return [
        f"A controller for {environment} that plans from pixels.",
        f"The world model, of the {family} family (`{making.family}`), encodes a frame of {spec.frame_size} px as "
        f"{_latent(spec.latent)}.",
        *([encoder] if encoder else []),
        f"The planner, of width {planner['width']}, drafts {planner['horizon']} blocks of {spec.actions.block} actions "
        f"and refines them {planner['refinements']} times.",
        f'Load it with `leplanner.load(FOLDER)`, or `leplanner.load("{task.name}")` if it ships with the package.',
    ]


def _latent(latent: LatentSpec) -> str:
    if len(latent.shape) == 1:
        return f"{latent.size} numbers"
    tokens, channels = latent.shape
    return f"{tokens} tokens of {channels} numbers"


def _measured_by(measured: Evaluation) -> str:
    methods = ",".join(dict.fromkeys(row.method for row in measured.methods))
    most = max(row.trials for row in measured.methods)
    searched = [row.trials for row in measured.methods if row.role == "search"]
    settings = {name: value for name, value in measured.settings.items() if searched or name != "search"}
    fewer = f" --search-trials {max(searched)}" if searched and max(searched) < most else ""
    return (
        f"Measured by `leplanner evaluate {measured.task} --methods {methods} --trials {most}{fewer} "
        f"--seed {measured.seed}`; {_listed(settings)}; {_listed(measured.fingerprint)}."
    )


def _paired(measured: Evaluation) -> list[str]:
    compared = [f"- {m.label}: {line}" for m in measured.methods for line in m.paired]
    title = "Paired differences of any-time success, in points (95 % bootstrap interval, exact McNemar p):"
    return [title, "", *compared, ""] if compared else []


def _data(file: Path) -> str:
    if file.suffix == ".h5" and file.exists():
        with h5py.File(file, "r") as opened:
            about = json.loads(str(opened.attrs.get("leplanner", "{}")))
        if about:
            config = about["config"]
            return (
                f"Data: {config['episodes']} episodes of {config['steps']} actions, collected with the task's behavior "
                f"policy at {config['size']} px, seed {config['seed']}. 95 % of the episodes are for training, the "
                "rest are held out."
            )
    return f"Data: {file.name}. 95 % of the episodes are for training planner and density, the rest are held out."


def _resized(config: dict[str, Any], making: Making) -> list[str]:
    spec, stored = WorldSpec.from_json(config["world"]), making.frames_px
    if stored in (None, spec.frame_size):
        return []
    return [f"Frames of the data are {stored} px large, and were resized to {spec.frame_size} px ({spec.resampling})."]


def _on_policy(files: tuple[Path, ...]) -> list[str]:
    lines = []
    for file in files:
        with h5py.File(file, "r") as opened:
            config = json.loads(str(opened.attrs["leplanner"]))["config"]
        lines.append(
            f"On-policy data: {config['episodes']} episodes of {config['steps']} actions, collected with an earlier "
            f"planner (bundle `{config['planner'][:12]}`) from states of training episodes towards later states of "
            f"the same episodes ({config['on_policy']}), seed {config['seed']}, added to the data."
        )
    return lines


def _stages(stages: dict[str, Path]) -> list[str]:
    lines = []
    for title, folder in stages.items():
        history = read_json(folder / "config.json")["training"]
        if "source" in history:
            lines.append(
                f"{title}: imported from {history['source']}; its training data may include the held-out episodes."
            )
            continue
        config, optim = history["config"], history["config"]["optim"]
        known = training_minutes(folder)
        minutes = f", {known:.1f} minutes" if known is not None else ""
        muon = ", weight matrices optimized with Muon" if optim["optimizer"] == "muon" else ""
        share = config.get("init_average")
        averaged = f" Weights: {1 - share:.0%} final and {share:.0%} initial, averaged." if share else ""
        lines.append(
            f"{title}: {optim['steps']} steps, batch size {optim['batch']}{muon}, seed {optim['seed']}{minutes}."
            f"{averaged}"
        )
    return lines


def _arrival(config: dict[str, Any]) -> str:
    metrics = config["training"]["metrics"]
    share = metrics["held_out_arrival"][-1] / metrics["held_out_start"]
    return f"Imagined distance to the goal on arrival, on held-out problems: {share:.2%} of the distance at the start."


def _limits(config: dict[str, Any], making: Making) -> list[str]:
    trials = (
        f"Trials are drawn from {making.test_episodes} test episodes, which nothing was trained or chosen on."
        if making.test_episodes
        else "Held-out episodes selected the checkpoint and provide the trials: they are validation data, not a test "
        "set."
    )
    grounded = (
        "The world model was trained with an auxiliary linear head that predicts the simulator's state from latents. "
        "The head is not part of the bundle, and the planner sees pixels only."
    )
    tracking = (
        "The planner was trained with an additional loss, not in the paper, that makes plans track the data's "
        "reference trajectory to the goal (latents, no actions; `--tracking-weight`)."
    )
    return [
        *([grounded] if config["world"]["grounded"] else []),
        *([tracking] if config["training"]["config"].get("tracking_weight") else []),
        "It was tested on states like those of its data, with one camera, lighting and frame size, and no others.",
        trials,
        "One training seed.",
    ]


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value != "")
